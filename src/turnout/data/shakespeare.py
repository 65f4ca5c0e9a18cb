"""Shakespeare's plays by speaking role: predict the next character."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from turnout.core.checks import DataError, count
from turnout.data.directory import Place, declare, files_at
from turnout.data.reading import read_bytes
from turnout.data.source import SOURCES, Source

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters, in LEAF's order; every other character counts as the last one."""

_PLAYS = files_at(
    "Shakespeare/plays",
    "https://raw.githubusercontent.com/martin-gorner/tensorflow-rnn-shakespeare/"
    "25946cd6486e8a8f96d84edb200a8b8b6e961c27/shakespeare/",
    {
        "1kinghenryiv.txt": "7590d173c0be7dba0e2322b357ad33e5e65375d7af154c4ad4d7350d86652780",
        "1kinghenryvi.txt": "715e55cc52c1150bcc9ae8fb91dd61a0773d76f3750fece25978b9f8783e1d90",
        "2kinghenryiv.txt": "4a9f52f2db3ed3f0c150eefb96e25941a4a0b402addfc559581e9025186e42e5",
        "2kinghenryvi.txt": "b282843daec114f4d0104330a94a700d217ac31ce3e3fa7aa24c3e296d9992f9",
        "3kinghenryvi.txt": "6156dfad1cd8844c645ddcdc1f4db4e02397f84669ca589cfc148123170863fb",
        "allswellthatendswell.txt": "3bad3562a52b3439cb63c6f267f3fb50ef44116eafd2429011ee9908d4b832bb",
        "antonyandcleopatra.txt": "4cecd44a3320f7d66dc04fb0a50c5250b589ae8a7f8990f8eb98086b19595876",
        "asyoulikeit.txt": "eaa3526fe53859f34ecdf255712f9ecf0b2c903451d4755b2edaa2e2599cb0fc",
        "comedyoferrors.txt": "d53fcfe394885515efa22e36ac945702a899908afbc1b827ee3459cfdfca0c78",
        "coriolanus.txt": "13d7e0259fcd46cdafb125ae0b6cc8b2432fdb4fe59afba55179adea955748b5",
        "cymbeline.txt": "b5bb1a49d38e1b62b14d7c35c5d932acf740cc8c7e08fbb76ebb8379bb103b3a",
        "hamlet.txt": "1846810b98f3dce4174a488cd19f3e7ceabff2a4b00487089fbcb2891003d847",
        "juliuscaesar.txt": "d4b1254e22888a272f4245b6af4aa9b9c61fc24798d30cd0287ff9491f4d8f5f",
        "kinghenryv.txt": "62cbcdfd774cdbc30b20032ef5be5ac92d678581612567f0b54d1cdcb7fd59c5",
        "kinghenryviii.txt": "63fc4a4ec60c4c72eac474917d0c234b9fe15d19deda213c857d911a386a3c49",
        "kingjohn.txt": "251870ca2777912eed076fc30ccb32e88784a124b6ef365855bb31a1ebac34a9",
        "kinglear.txt": "674a2725884307c96398440497c889ad8cecccedf5689df85e6b0faabe4e0fe8",
        "kingrichardii.txt": "7af43884757911af0b365a9b5544e75c4d6c423c40f6b3b289b5a39756fdb1e5",
        "kingrichardiii.txt": "0b5ef70294ed26ffe2c5496e3723650e8bef5ac178c83287ef7735d9c5d2f9d5",
        "loveslabourslost.txt": "b7521b8ae6d6cff3cd4c709edfb1d9776a40756a9fc0d86d3676ed9f1621269e",
        "macbeth.txt": "339afa674ac54e5038bd610056e87b0ba70f6543b2fbcfea421bfd0fbbc21e7f",
        "measureforemeasure.txt": "1449c06143bdf48eaddf989f9136c8dbd36cf3893d75420f854085c8226ca93e",
        "merchantofvenice.txt": "54b95ab530e81bfcd03325b6bd7b14d20d1a9d41a38c2d8867c3fa8da1b6292c",
        "merrywivesofwindsor.txt": "85dfbea19962e8d21479debc0f0df48c244f05ec99e0cba9d41da0f01739a16c",
        "midsummersnightsdream.txt": "684b22072f158a7965e942d7e9b633bf7c6c65b14a7b519631bbf2f826349370",
        "muchadoaboutnothing.txt": "fad832e284ccabb6fcb5dc3dd34d2636a07358d6474f10eed8e9ed98050208ee",
        "othello.txt": "e1590d00e121e53587157fa952e0da4070b76721599ebcedce3bb698228adbab",
        "periclesprinceoftyre.txt": "f03561e0fb339fd38359093bf6a0c63bfa2c3ba1eafe66ef50aacfe91295a739",
        "romeoandjuliet.txt": "1cd830b4a8154da63839a2379f15c2e820b8fa5a339a3b751fc554a8e14af327",
        "tamingoftheshrew.txt": "87f9d1f22bb050276d1677012ea09d853aadc542ca84adcd44b82f48b4870438",
        "tempest.txt": "1f20301e552d43aaaca298af6f36334319934fac98b24306e6836d849386e6e8",
        "timonofathens.txt": "a01c9ebbf5d31936571997a4a13d3a3554ec3b081956b4da0b4a12d7f4d7581e",
        "titusandronicus.txt": "5135117e84fa127c7a4b0e376bb5ab97ac99cdad7da51ba463ba40febca44801",
        "troilusandcressida.txt": "fdf3a04f0a92ec3c61ea7349d301c4d4eae1805dfa6d6c2d6e477aeabc76e4df",
        "twelfthnight.txt": "68a44a35e82462d4f0217d2a40db874a431d666626691a806b63339118831039",
        "twogentlemenofverona.txt": "53f40375e388911699a92321eff4585ab391ecb45b0c64c0bca0389b0b767413",
        "winterstale.txt": "9a1c8f6f73264b2bfb7e1b674cc2c8690da8c3eedffc911f28de7deec449d6cd",
    },
)
SHAKESPEARE = Place(
    "shakespeare",
    tuple(Path(file.path).name for file in _PLAYS),
    ("Shakespeare/plays", "shakespeare/plays", "Shakespeare", "shakespeare"),
    bare=("plays", "."),
)

declare("shakespeare", SHAKESPEARE, remote=_PLAYS)

_INDEX = np.full(256, len(ALPHABET) - 1, dtype=np.uint8)
_INDEX[np.frombuffer(ALPHABET.encode("latin-1"), dtype=np.uint8)] = np.arange(len(ALPHABET))

_RUNNING_TITLE = re.compile(r"\n\t[^a-z\n]*\n+(?=ACT )")  # the play's name, repeated above each ACT
_DIRECTION = re.compile(r"\[(?:[^\[\]\n]|\n(?!\n))*\]?")  # some never close: then the paragraph's end closes them
_HEADING = re.compile(r"(ACT|SCENE)\b|\t(PROLOGUE|EPILOGUE)\.?$")


@SOURCES.register
def shakespeare(
    directory: str | os.PathLike[str] | None = None,
    sequence_length: int = 80,
    *,
    stride: int = 1,
    min_examples: int = 2,
) -> Source:
    """Shakespeare by speaking role: predict the next character after 80; a role in a play is a natural client.

    A role's speeches are joined by line ends, the lines of a speech by blanks; stage directions are left out. Of the
    resulting characters c_1, ..., c_L example i is (c_{i+1}, ..., c_{i+80}) with the label c_{i+81}, for
    i = 0, stride, 2 stride, ... as in LEAF, except that LEAF also predicts the first 80 characters, from blanks.

    Inputs are character indices, uint8 ``[n, sequence_length]`` (4 million examples take 0.3 GB so): a model turns them
    into int64. The alphabet is `ALPHABET`. Windows overlap: where a role's examples are split into training and test at
    random, as LEAF does, most characters that are tested were also trained on. Reads the 37 plays from
    ``Shakespeare/plays`` in the data directory.

    Args:
        directory: the data directory, or the folder of the plays.
        sequence_length: characters that a prediction sees.
        stride: positions from one window to the next; 1 predicts every character.
        min_examples: roles with fewer are left out.

    Raises:
        DataError: if a play is missing or is no play, or no role is long enough.

    References: H. B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    AISTATS 2017; S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018.
    """
    for option, value in (("sequence_length", sequence_length), ("stride", stride), ("min_examples", min_examples)):
        count(option, value)
    texts = {role: "\n".join(filter(None, speeches)) for role, speeches in read_roles(directory).items()}
    lengths = np.array([len(text) for text in texts.values()])
    num_windows = np.maximum(0, -(-(lengths - sequence_length) // stride))
    kept = num_windows >= min_examples
    if not kept.any():
        raise DataError(
            f"shakespeare: no role has {min_examples} windows of {sequence_length} characters (the longest has "
            f"{lengths.max()}): write a smaller sequence_length, stride or min_examples"
        )
    # One flat text of all roles; window i of a role starts at the role's first character + i * stride.
    sizes, first = num_windows[kept], (np.cumsum(lengths) - lengths)[kept]
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    starts = np.repeat(first, sizes) + stride * within
    text = character_indices("".join(texts.values()))
    return Source(
        name="shakespeare",
        x=torch.from_numpy(sliding_window_view(text, sequence_length)[starts]),
        y=torch.from_numpy(text[starts + sequence_length].astype(np.int64)),
        num_classes=len(ALPHABET),
        client_ids=np.repeat(np.arange(len(sizes)), sizes),
        client_names=tuple(f"{play}/{speaker}" for (play, speaker), keep in zip(texts, kept, strict=True) if keep),
        recipe={
            "source": "shakespeare",
            "sequence_length": sequence_length,
            "stride": stride,
            "min_examples": min_examples,
        },
    )


def character_indices(text: str) -> np.ndarray:
    """Return where characters are in `ALPHABET`, uint8 ``[len(text)]``; one that is not in it counts as the last."""
    codes = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4")
    return _INDEX[np.minimum(codes, 255)]  # 255 is not in the alphabet


def read_roles(directory: str | os.PathLike[str] | None = None) -> dict[tuple[str, str], list[str]]:
    """Return the speeches of every role, in order: ``{(play, speaker): [speech, ...]}``, plays in sorted order.

    Raises:
        DataError: if a play is missing, or holds no speech.
    """
    folder = SHAKESPEARE.locate(directory)
    roles: dict[tuple[str, str], list[str]] = {}
    for file in SHAKESPEARE.files:
        path = folder / file
        speeches = parse_play(_text(path))
        if not speeches:
            expected = "a line `ACT I`, then speeches as SPEAKER, a tab, text"
            raise SHAKESPEARE.damaged(path, found="no speech", expected=expected)
        for speaker, speech in speeches:
            roles.setdefault((path.stem, speaker), []).append(speech)
    return roles


def _text(path: Path) -> str:
    """Return the text of a play, with line feeds alone at the ends of its lines."""
    return read_bytes(path).decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")


def parse_play(text: str) -> list[tuple[str, str]]:
    """Return the speeches (speaker, text) of a play, in order.

    What follows the line ``ACT I`` is read. A speech starts ``SPEAKER<TAB>text``, its further lines start with a tab.
    Stage directions in brackets and the play's running title are left out, white space is collapsed to single blanks.
    """
    _, found, body = text.partition("\nACT I\n")
    body = _DIRECTION.sub("", _RUNNING_TITLE.sub("\n", body)) if found else ""
    speeches: list[tuple[str, list[str]]] = []
    speaking = False
    for line in body.split("\n"):
        if _HEADING.match(line):
            speaking = False
        elif line.startswith("\t"):
            if speaking:
                speeches[-1][1].append(line)
        elif "\t" in line:
            speaker, _, first = line.partition("\t")
            speeches.append((speaker.strip(), [first]))
            speaking = True
    return [(speaker, " ".join(re.sub(r"[|\]]", " ", " ".join(lines)).split())) for speaker, lines in speeches]
