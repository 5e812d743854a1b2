"""Writes what hipvit takes from ftfy and from Python's html module as data: the expressions that find mojibake, the character maps,
and HTML's named entities.

    venv/bin/pip install -r scripts/requirements.txt
    venv/bin/python scripts/ftfy_tables.py

Writes src/model/text/open_clip/tables.rs and src/model/text/open_clip/entities.txt.
"""

import html.entities
import re
from pathlib import Path

import ftfy.badness
import ftfy.chardata

DIRECTORY = Path(__file__).resolve().parent.parent / "src" / "model" / "text" / "open_clip"
# What Python's \s and \w match, by Rust's names.
CLASSES = {r"\s": r"[\s\x1c-\x1f]", r"\w": r"[\p{L}\p{N}_]"}


def literal(character: str) -> str:
    """A character as an expression that is readable in the source."""
    if character.isascii() or not character.isprintable() or not character.isalnum():
        return character if character.isascii() and character.isprintable() else rf"\x{{{ord(character):x}}}"
    return character


def compact(verbose: str) -> str:
    """A verbose expression without its spaces and comments, which Rust would also drop inside of brackets."""
    result, position, bracket = "", 0, False
    while position < len(verbose):
        character = verbose[position]
        if character == "\\":
            escape = verbose[position:position + 2]
            if escape == r"\x":
                escape = verbose[position:position + 4]
            if escape in CLASSES:
                assert not bracket
            result += CLASSES.get(escape, escape)
            position += len(escape)
            continue
        if character == "#" and not bracket:
            position = verbose.index("\n", position)
        elif character.isspace() and character.isascii() and not bracket:
            position += 1
        else:
            bracket = character == "[" or (bracket and character != "]")
            result += literal(character)
            position += 1
    return result


def placeholders(pattern: str, categories: dict[str, str]) -> str:
    """The expression with the names of the categories again in place of their characters."""
    for name, characters in sorted(categories.items(), key=lambda item: -len(item[1])):
        pattern = pattern.replace(characters, f"{{{name}}}")
    return pattern


def expression(name: str, comment: str, pattern: str, categories: dict[str, str]) -> str:
    """A constant: one line for each alternative."""
    template = placeholders(pattern, categories)
    restored = template
    for key, characters in categories.items():
        restored = restored.replace(f"{{{key}}}", characters)
    assert restored == pattern
    alternatives = re.split(r"(?<=\|)(?=[^|])", compact(template))
    rows = "".join(f'    r#"{alternative}"#,\n' for alternative in alternatives)
    sets = "".join(f'    ("{{{key}}}", r#"{compact("[" + characters + "]")[1:-1]}"#),\n'
                   for key, characters in categories.items() if f"{{{key}}}" in template)
    count = sets.count("\n")
    return f'''
/// {comment}
#[rustfmt::skip]
pub(super) const {name}: &str = concat!(
{rows});

/// The sets of characters that [`{name}`] names.
#[rustfmt::skip]
pub(super) const {name}_SETS: [(&str, &str); {count}] = [
{sets}];
'''


def charmap(encoding: str) -> str:
    decoded = bytes(range(0x80, 0x100)).decode(encoding)
    assert len(decoded) == 128 and "\ufffd" not in decoded
    return "".join(c if c.isalnum() else f"\\u{{{ord(c):x}}}" for c in decoded)


def main() -> None:
    maps = "".join(
        f'    ("{encoding}", "{charmap(encoding)}"),\n' for encoding in ftfy.chardata.CHARMAP_ENCODINGS)
    badness = expression("BADNESS", "Sequences of characters that are unlikely in a text that was decoded rightly.",
                         ftfy.badness.BADNESS_RE.pattern, ftfy.badness.MOJIBAKE_CATEGORIES)
    detector = expression("UTF8_DETECTOR", "Sequences that look like UTF-8 that was decoded as a single-byte encoding.",
                          ftfy.chardata.UTF8_DETECTOR_RE.pattern, ftfy.chardata.UTF8_CLUES)
    ligatures = "".join(f"    ('{chr(code)}', \"{text}\"),\n" for code, text in ftfy.chardata.LIGATURES.items())
    (DIRECTORY / "tables.rs").write_text(f'''//! Data of ftfy {ftfy.__version__}, written by scripts/ftfy_tables.py.
{badness}{detector}
/// The encodings that texts are tried by, in order, with the characters of the bytes from 0x80.
#[rustfmt::skip]
pub(super) const ENCODINGS: [(&str, &str); {len(ftfy.chardata.CHARMAP_ENCODINGS)}] = [
{maps}];

/// The characters of the bytes from 0x80 in Windows-1252, with those of Latin-1 where it has none.
pub(super) const WINDOWS_1252: &str = ENCODINGS[{ftfy.chardata.CHARMAP_ENCODINGS.index("sloppy-windows-1252")}].1;

/// Ligatures of Latin letters, and their letters.
#[rustfmt::skip]
pub(super) const LIGATURES: [(char, &str); {len(ftfy.chardata.LIGATURES)}] = [
{ligatures}];
''')
    names = sorted(html.entities.html5.items())
    (DIRECTORY / "entities.txt").write_text(
        "".join(f"{name} {' '.join(f'{ord(c):x}' for c in value)}\n" for name, value in names))
    print(f"{len(names)} entities")


if __name__ == "__main__":
    main()
