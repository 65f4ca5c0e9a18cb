"""Instructions for language models."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError, DataError

RECORDS = [
    {"instruction": "ab", "output": "cd", "client": "x"},
    {"instruction": "a", "output": "c", "client": "y"},
    {"instruction": "abc", "output": "d", "client": "x"},
]


def letters(text):
    return [ord(letter) for letter in text]


def source(records: Any = RECORDS, tokenizer: Any = letters, **options):
    return to.data.from_instructions(records, tokenizer, **{"template": "{instruction}?", "end": 0, **options})


def test_loss_covers_answers_and_end_tokens_only():
    made = source()
    assert made.x[0].tolist() == letters("ab?cd")
    assert made.y[0].tolist() == [-100, -100, *letters("cd"), 0]
    assert made.y[1].tolist() == [-100, *letters("c"), 0, -100, -100]
    assert made.client_names == ("x", "y")


def test_json_and_json_lines_are_read(tmp_path):
    whole, lines = tmp_path / "data.json", tmp_path / "data.jsonl"
    whole.write_text(json.dumps(RECORDS))
    lines.write_text("\n".join(map(json.dumps, RECORDS)) + "\n\n")
    for path in (whole, str(lines)):
        assert source(path).y.tolist() == source().y.tolist()
    assert torch.equal(source(test=lines).test_y, source().y)  # type: ignore[arg-type]


def test_prompts_without_room_for_answers_are_omitted_and_answers_truncated():
    made = source(max_length=4)
    assert made.y.tolist() == [[-100, -100, ord("c")], [-100, ord("c"), 0]]


def test_table_columns_fill_the_template(tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.Table.from_pylist(RECORDS), path)
    assert source(path).y.tolist() == source().y.tolist()
    assert source(path).client_names == ("x", "y")


def test_named_source_has_byte_tokens(tmp_path):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(RECORDS))
    made = to.data.instructions(str(path), template="{instruction}?")
    assert made.y.tolist() == source().y.tolist()
    assert made.num_classes == 256


def test_short_examples_of_a_client_are_packed():
    made = source(pack=True, max_length=9)
    assert torch.equal(made.x, source().x)  # two of client x would be 12 tokens
    made = source(pack=True, max_length=12)
    assert made.client_ids is not None
    assert made.client_ids.tolist() == [0, 1]
    tokens = [*letters("ab?cd"), 0, *letters("abc?d"), 0]
    assert made.x[0].tolist() == tokens[:-1]
    assert made.y[0].tolist() == [-100, -100, *letters("cd"), 0, -100, -100, -100, -100, ord("d"), 0]
    assert made.x[1, :3].tolist() == letters("a?c")
    assert int((made.y >= 0).sum()) == int((source().y >= 0).sum())


class Chat:
    """As a tokenizer of Hugging Face with a chat template."""

    eos_token_id, chat_template = 1, "a template"

    def __len__(self):
        return 300

    def __call__(self, text):
        raise AssertionError(text)

    def encode(self, text, add_special_tokens):
        assert not add_special_tokens
        return letters(text)

    def apply_chat_template(self, turns, add_generation_prompt, tokenize, return_dict):
        assert add_generation_prompt
        assert tokenize
        assert not return_dict
        return [2, *letters(turns[0]["content"]), 3]


def test_chat_template_writes_the_user_turn():
    made = source(RECORDS[:1], Chat(), end=None)
    assert made.x[0].tolist() == [2, *letters("ab?"), 3, *letters("cd")]
    assert made.y[0].tolist() == [-100] * 4 + [*letters("cd"), 1]
    assert made.num_classes == 300


def test_template_defaults_to_that_of_the_tokenizer():
    record = {"instruction": "ab", "output": "c"}
    plain = source([record], template=None, client_id=None)
    assert bytes(plain.x[0].tolist()).decode() == "### Instruction:\nab\n\n### Response:\nc"
    assert (
        source([record], Chat(), template=None, client_id=None).x[0].tolist()
        == [2, *letters("ab"), 3, ord("c"), 0][:-1]
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"template": "now"}, ConfigurationError, "template: got 'now', needed fields of a record in braces"),
        (
            {"template": "{question}"},
            DataError,
            r"record 0 has no field 'question': its fields are instruction, output",
        ),
        ({"answer": "answer"}, DataError, "record 0 has no field 'answer'"),
        ({"client_id": "owner"}, DataError, "record 0 has no field 'owner'"),
        ({"pack": True}, ConfigurationError, "pack: rows need a length: write max_length=512"),
        ({"max_length": 1}, DataError, "none has an answer within max_length=1 tokens: the shortest prompt has"),
        ({"tokenizer": lambda text: {"input_ids": text}}, ConfigurationError, "tokenizer: got a mapping for a text"),
    ],
)
def test_invalid_arguments_raise(options, error, message):
    with pytest.raises(error, match=message):
        source(**options)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "needed a JSON list of objects"), ('{"a": 1}', "holds no list of objects")]
)
def test_file_without_records_is_refused(tmp_path, text, message):
    path = tmp_path / "data.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        source(path)
    with pytest.raises(DataError, match="needed a JSON list of objects"):
        source(tmp_path / "nothing.json")
