"""Layers of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnout.cli.layers import merge, override, read
from turnout.core.checks import ConfigurationError


def test_upper_layer_has_priority_per_table() -> None:
    under = {"rounds": 10, "local": {"lr": 0.1, "steps": 5}}
    assert merge(under, {"rounds": 20, "local": {"lr": 0.2}}) == {"rounds": 20, "local": {"lr": 0.2, "steps": 5}}
    assert under == {"rounds": 10, "local": {"lr": 0.1, "steps": 5}}


def test_another_name_discards_options_of_the_previous_one() -> None:
    fedau = {"algorithm": {"name": "fedau", "cutoff": 10}}
    assert merge(fedau, {"algorithm": {"name": "mifa"}}) == {"algorithm": {"name": "mifa"}}
    assert merge(fedau, {"algorithm": {"name": "fedau"}}) == fedau
    assert merge(fedau, {"algorithm": {"cutoff": 3}}) == {"algorithm": {"name": "fedau", "cutoff": 3}}
    assert merge({"algorithm": {"cutoff": 3}}, {"algorithm": {"name": "fedau"}}) == {
        "algorithm": {"name": "fedau", "cutoff": 3}
    }


@pytest.mark.parametrize(
    ("text", "layer"),
    [
        ("rounds=10", {"rounds": 10}),
        ("data.alpha=0.3", {"data": {"alpha": 0.3}}),
        ("data.partition.alpha=1e3", {"data": {"partition": {"alpha": 1000.0}}}),
        ("algorithm.cutoff=none", {"algorithm": {"cutoff": "none"}}),
        ("model.hidden=[64, 30]", {"model": {"hidden": [64, 30]}}),
        ("model.hidden=64,30", {"model": {"hidden": "64,30"}}),
        ("local.drop_last=true", {"local": {"drop_last": True}}),
        ('local.lr={kind="cosine", rounds=3}', {"local": {"lr": {"kind": "cosine", "rounds": 3}}}),
        ("data.directory=/a/b=c", {"data": {"directory": "/a/b=c"}}),
        ("name=", {"name": ""}),
    ],
)
def test_override_is_a_layer(text: str, layer: dict[str, Any]) -> None:
    assert override(text) == layer


@pytest.mark.parametrize("text", ["local.lr", "=3", "local.=3", ".lr=3"])
def test_override_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"needed key=value, such as local.lr=0.05"):
        override(text)


def test_file_is_a_layer(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('rounds = 3\n[data]\nname = "mnist"\n')
    assert read(path) == {"rounds": 3, "data": {"name": "mnist"}}


def test_missing_or_invalid_toml_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a.toml: no such file; needed a TOML file"):
        read(tmp_path / "a.toml")
    with pytest.raises(ConfigurationError, match=r"cannot be read"):
        read(tmp_path)
    (tmp_path / "b.toml").write_text("rounds: 3")
    with pytest.raises(ConfigurationError, match=r"b.toml is no TOML file: .*line 1"):
        read(tmp_path / "b.toml")


def test_settings_of_a_run_are_read_as_saved(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"rounds": 3}')
    assert read(tmp_path / "settings.json") == {"rounds": 3}
    (tmp_path / "b.json").write_text("rounds = 3")
    with pytest.raises(ConfigurationError, match=r"b.json is no JSON file: .*line 1"):
        read(tmp_path / "b.json")
    (tmp_path / "c.json").write_text("[3]")
    with pytest.raises(ConfigurationError, match=r"c.json holds no settings: got list, needed an object"):
        read(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("deep.toml", "a = " + "[" * 5000, "is no TOML file: maximum recursion depth"),
        ("deep.json", '{"a": ' + "[" * 50_000, "is no JSON file: maximum recursion depth"),
        ("long.toml", "rounds = " + "9" * 5000, "is no TOML file: Exceeds the limit"),
        ("nested.toml", "a = " + "[" * 30 + "]" * 30, "nested more than 20 levels deep"),
        ("endless.yaml", "a: &a [*a]", "nested more than 20 levels deep"),
        ("bomb.yaml", "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
            f"{n}: &{n} [{','.join([f'*{m}'] * 8)}]\n" for m, n in zip("abcdefgh", "bcdefghi", strict=True)
        ), "more than 1,000,000 values"),
        ("number.yaml", "1: 2", "got 1 as the name of a setting, needed a text"),
        ("latin.toml", b"a = '\xe9'", "is no TOML file: 'utf-8' codec"),
    ],
)  # fmt: skip
def test_malformed_settings_are_refused(tmp_path, name, content, message):
    if name.endswith("yaml"):
        pytest.importorskip("yaml", reason="an extra: pip install '.[yaml]'")
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigurationError, match=message):
        read(path)


def test_folder_as_settings_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"cannot be read: .*Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize("value", ["9" * 5000, "fedau", "64,30", "2026-13-01"])
def test_non_toml_values_are_texts(value):
    assert override(f"rounds={value}") == {"rounds": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data={alpha=1, alpha=2}", r"data: {alpha=1, alpha=2} is malformed TOML: Dupl.* 'alpha' .*line 1, column 18"),
        ("data={alpha=1", r"data: {alpha=1 is malformed TOML: Unclosed"),
        ("local.lr=[0.1, 0.2", r"local\.lr: \[0\.1, 0\.2 is malformed TOML: Unclosed array"),
        ("model={hidden=[64}", r"is malformed TOML: Unclosed array \(at line 1, column 12\): needed a value such as"),
        ("name='a", r"name: 'a is malformed TOML"),
        ("local.lr=" + "[" * 5000, r"local\.lr: \[{80}\.\.\. is malformed TOML: maximum recursion depth"),
    ],
)
def test_malformed_tables_lists_and_quotes_are_refused(text, message):
    with pytest.raises(ConfigurationError, match=message):
        override(text)


def test_nesting_of_overrides_is_limited():
    with pytest.raises(ConfigurationError, match=r"override 'a\.a\..*needed key=value"):
        override("a." * 3000 + "b=1")
    with pytest.raises(ConfigurationError, match="a: got settings that are nested more than 20 levels deep"):
        override("a=" + "[" * 30 + "]" * 30)
