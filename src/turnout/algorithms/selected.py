"""What recipes leave open: a selection among the further pieces goes before the recipe's own."""

from __future__ import annotations

from turnout.core.pieces import Piece, Selection


def selected(default: Selection, also: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The further pieces, with the recipe's selection unless they hold one."""
    return also if any(isinstance(piece, Selection) for piece in also) else (default, *also)
