"""Make the pictures of the tutorials: run the Python of each page as it stands, in its folder.

``python scripts/pictures.py`` makes all of them, ``python scripts/pictures.py fedau`` those of one page.
"""

import os
import re
import sys
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parents[1] / "docs" / "tutorials"


def main() -> None:
    """Run the first block of each page, which makes its picture."""
    os.chdir(TUTORIALS)
    for page in sorted(TUTORIALS.glob("*.md")):
        if page.stem in sys.argv[1:] or len(sys.argv) == 1:
            block = re.search(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
            assert block is not None, page
            exec(compile(block[1], page.name, "exec"), {})
            picture = page.with_suffix(".svg")  # without the date and the clip paths' random names
            text = re.sub(r"<metadata>.*?</metadata>", "", picture.read_text(encoding="utf-8"), flags=re.DOTALL)
            picture.write_text(text, encoding="utf-8")
            print(picture.name)


if __name__ == "__main__":
    main()
