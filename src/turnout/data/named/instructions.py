"""Make sources of instructions and answers, for language models that are trained on the answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from turnout.core.checks import ConfigurationError, DataError, refuse
from turnout.core.extras import imported
from turnout.data.directory import declare
from turnout.data.reading import read_table_file
from turnout.data.source import SOURCES, Source
from turnout.data.targets import IGNORED
from turnout.data.tokens import from_tokens

log = logging.getLogger("turnout.data")

Record = Mapping[str, Any]
Row = tuple[list[int], list[int], Any]
"""The tokens of an example, their labels, and the client."""

TEMPLATE = "### Instruction:\n{instruction}\n\n### Response:\n"
BYTES = "bytes"
"""The name of a tokenizer without files: the UTF-8 bytes of a text, with 0 after the answer."""

declare("instructions", elsewhere="a file of your own: data.path=FILE data.client=FIELD")


@SOURCES.register
def instructions(
    path: str,
    tokenizer: str = BYTES,
    *,
    template: str | None = None,
    answer: str = "output",
    client: str = "client",
    max_length: int | None = None,
    pack: bool = False,
    test: str | None = None,
) -> Source:
    """Instructions and answers in a JSON or Parquet file, for language models; see `from_instructions`.

    Args:
        path: the file.
        tokenizer: a folder with a tokenizer of Hugging Face, or a name on the Hub; ``"bytes"`` has a token for each byte.
        template, answer, max_length, pack, test: as `from_instructions` has them.
        client: the field with the client of each example.

    Raises:
        ConfigurationError: if a tokenizer cannot be loaded.
    """
    made, end, size = (_bytes, 0, 256) if tokenizer == BYTES else (_pretrained(tokenizer), None, None)
    return from_instructions(
        path, made, template=template, answer=answer, client_id=client, end=end, test=test, max_length=max_length,
        num_classes=size, pack=pack,
    )  # fmt: skip


def _bytes(text: str) -> list[int]:
    """Return the UTF-8 bytes of a text."""
    return list(text.encode())


def _pretrained(name: str) -> Any:
    """Load a tokenizer of Hugging Face."""
    transformers = imported("transformers", f"data.tokenizer={name}", ".[transformers]")
    try:
        return transformers.AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"tokenizer: got {name!r}, needed 'bytes', or a folder or a name on the Hub with a tokenizer: {reason}"
        ) from error


def from_instructions(
    records: str | PathLike[str] | Iterable[Record],
    tokenizer: Callable[[str], Any],
    *,
    template: str | None = None,
    answer: str = "output",
    client_id: str | None = "client",
    end: int | None = None,
    test: str | PathLike[str] | Iterable[Record] | None = None,
    max_length: int | None = None,
    num_classes: int | None = None,
    pack: bool = False,
    name: str = "instructions",
) -> Source:
    """Make a source of prompts and answers, whose loss is over the tokens of answers.

    A text is the prompt, the answer and the end token. Its loss is the mean over the tokens of the answer and the end token,
    so ``exp(test_loss)`` is the perplexity of answers, as is usual in instruction tuning. A tokenizer of Hugging Face with a
    chat template formats the prompt as the turn of a user.

    Args:
        records: a JSON file with a list of objects, a file with one object per line (``.jsonl``), a Parquet, Feather or CSV
            file with a column for each field, or the objects.
        tokenizer: tokenizer of Hugging Face, or a function from a text to its token numbers.
        template: template of the prompt, with fields of a record in braces; None is ``"{instruction}"`` with a chat
            template, and Alpaca's headings (`TEMPLATE`) without one.
        answer: the field with the answer.
        client_id: the field with the client of each example; None if there is none.
        end: the token that ends an answer; None is the tokenizer's ``eos_token_id``, if it has one.
        test: other records, the official test split.
        max_length: number of tokens to which texts are truncated; examples whose prompts are as long are left out.
        num_classes: size of the vocabulary; None is that of the tokenizer, or one more than the largest token.
        pack: concatenate the examples of a client to rows of up to `max_length` tokens, for less padding. Each row is then an
            example, within which all tokens of answers have the same weight. Attention and positions are not reset between
            the texts of a row, as in pre-training.
        name: name of the data in reports.

    Raises:
        ConfigurationError: if a template has no fields, or `pack` is without `max_length`.
        DataError: if a file cannot be read, records lack a field, or no answer fits into `max_length`.

    Example:
        >>> records = [{"instruction": "Add 1 to 2", "output": "3", "client": "a"}]
        >>> letters = lambda text: [ord(letter) for letter in text]
        >>> source = from_instructions(records, letters, template="{instruction}=", end=0)
        >>> source.y[0].tolist()[-3:], [chr(token) for token in source.x[0, -2:]]
        ([-100, 51, 0], ['=', '3'])
    """
    if pack and max_length is None:
        raise ConfigurationError("pack: rows need a length: write max_length=512")
    if template is None:
        template = TEMPLATE if getattr(tokenizer, "chat_template", None) is None else "{instruction}"
    if "{" not in template:
        raise refuse("template", given=template, needed="fields of a record in braces", instead="Such as {instruction}")
    if end is None:
        end = getattr(tokenizer, "eos_token_id", None)
    if num_classes is None and hasattr(tokenizer, "__len__"):
        num_classes = len(tokenizer)  # type: ignore[arg-type]
    reader = _Reader(tokenizer, template, answer, client_id, end, max_length, pack)
    return from_tokens(
        reader.columns(_records(records)),
        client_id=client_id,
        test=None if test is None else reader.columns(_records(test)),
        max_length=max_length,
        num_classes=num_classes,
        name=name,
    )


def _records(source: str | PathLike[str] | Iterable[Record]) -> list[Record]:
    """Return the objects of a file, or of an iterable."""
    if not isinstance(source, str | PathLike):
        return list(source)
    path = Path(source)
    if path.suffix in (".parquet", ".feather", ".arrow", ".csv", ".tsv"):
        return read_table_file(path, "instructions").to_pylist()
    try:
        text = path.read_text(encoding="utf-8")
        lines = path.suffix == ".jsonl"
        records = [json.loads(line) for line in text.splitlines() if line.strip()] if lines else json.loads(text)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: needed a JSON list of objects, .jsonl with one a line, or .parquet: {error}"
        ) from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise DataError(f"{path} holds no list of objects: needed fields of an instruction in each")
    return records


@dataclass(frozen=True)
class _Reader:
    """Convert records to tokens; the attributes are arguments of `from_instructions`."""

    tokenizer: Callable[[str], Any]
    template: str
    answer: str
    client_id: str | None
    end: int | None
    max_length: int | None
    pack: bool

    def columns(self, records: Sequence[Record]) -> dict[str, list[Any]]:
        """Return columns of tokens, of labels (`IGNORED` for prompts), and of clients."""
        left_out: list[int] = []  # lengths of prompts
        rows: list[Row] = []
        for number, record in enumerate(records):
            question, target, owner = self._example(number, record)
            if not target or (self.max_length is not None and len(question) >= self.max_length):
                left_out.append(len(question))
            else:
                rows.append(([*question, *target], [*[IGNORED] * len(question), *target], owner))
        if not rows:
            shortest = (
                f": the shortest prompt has {min(left_out)}; raise it, or shorten the template" if left_out else ""
            )
            raise DataError(
                f"of {len(records)} records none has an answer within max_length={self.max_length} tokens{shortest}"
            )
        if left_out:
            log.warning("left out %d of %d records without an answer within max_length", len(left_out), len(records))
        if self.pack:
            rows = _packed(rows, self.max_length or 0)
        names = ("input_ids", "labels", *([self.client_id] if self.client_id else []))
        return {name: [row[position] for row in rows] for position, name in enumerate(names)}

    def _example(self, number: int, record: Record) -> tuple[list[int], list[int], Any]:
        """Return the tokens of the prompt and of the answer of a record, and its client."""
        try:
            prompt, response = self.template.format(**record), str(record[self.answer])
            owner = record[self.client_id] if self.client_id else None
        except (KeyError, IndexError) as error:
            raise DataError(
                f"record {number} has no field {error}: its fields are {', '.join(map(str, record))}; say which to take by "
                "template, answer and client_id"
            ) from error
        end = [] if self.end is None else [self.end]
        return _prompt(self.tokenizer, prompt), [*_tokens(self.tokenizer, response), *end], owner


def _packed(examples: Sequence[Row], length: int) -> list[Row]:
    """Concatenate the examples of each client to rows of up to `length` tokens, in their order."""
    packed: list[Row] = []
    last: dict[Any, Row] = {}  # the incomplete row of each client
    for tokens, labels, owner in examples:
        if owner not in last or len(last[owner][0]) + len(tokens) > length:
            last[owner] = [], [], owner
            packed.append(last[owner])
        last[owner][0].extend(tokens[:length])
        last[owner][1].extend(labels[:length])
    return packed


def _prompt(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a prompt, formatted as a user's turn if the tokenizer has a chat template."""
    if getattr(tokenizer, "chat_template", None) is None:
        return _tokens(tokenizer, text)
    turns = [{"role": "user", "content": text}]
    tokens = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=False)
    return list(tokens)


def _tokens(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text, without special tokens."""
    if hasattr(tokenizer, "encode"):
        return list(tokenizer.encode(text, add_special_tokens=False))
    tokens = tokenizer(text)
    if isinstance(tokens, Mapping):
        raise ConfigurationError("tokenizer: got a mapping for a text, needed its token numbers")
    return [int(token) for token in tokens]
