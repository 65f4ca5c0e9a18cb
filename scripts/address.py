"""Write the address of the repository where an index and readers look for it, before a release.

``python scripts/address.py https://HOST/OWNER/turnout`` sets ``[project.urls]`` in pyproject.toml and ``repository-code`` in
CITATION.cff, and makes the links of README.md absolute, because an index shows the README without the files beside it.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def absolute(readme: str, address: str, ref: str) -> str:
    """Return the README with links and pictures below `address`, at the tag or branch `ref`."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found[1] == "!" else "blob"
        return f"{found[1]}[{found[2]}]({address}/{kind}/{ref}/{found[3]})"

    return re.sub(r"(!?)\[((?:[^\[\]]|!?\[[^\]]*\]\([^)]*\))*)\]\((?!https?:|#)([^)\s]+)\)", link, readme)


def with_urls(project: str, address: str) -> str:
    """Return pyproject.toml with the project's addresses."""
    addresses = {"Source": address, "Changelog": f"{address}/blob/main/CHANGELOG.md", "Issues": f"{address}/issues"}
    urls = "[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in addresses.items()) + "\n"
    project = re.sub(r"\[project\.urls\]\n(?:[^\[\n].*\n)*\n", "", project)
    return project.replace("[project.scripts]\n", urls + "[project.scripts]\n", 1)


def with_repository(citation: str, address: str) -> str:
    """Return CITATION.cff with the repository."""
    return re.sub(r"^repository-code: .*\n", "", citation, flags=re.M) + f'repository-code: "{address}"\n'


def main() -> None:
    """Change the three files."""
    if len(sys.argv) != 2 or not sys.argv[1].startswith("https://"):
        sys.exit("usage: python scripts/address.py https://HOST/OWNER/turnout")
    address = sys.argv[1].rstrip("/")
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    assert version is not None
    for name, change in {
        "README.md": lambda text: absolute(text, address, f"v{version[1]}"),
        "pyproject.toml": lambda text: with_urls(text, address),
        "CITATION.cff": lambda text: with_repository(text, address),
    }.items():
        path = ROOT / name
        path.write_text(change(path.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
