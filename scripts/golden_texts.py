"""Writes tests/data/text: what open_clip makes of texts before their tokens, and the tokens of open_clip and of transformers for
directories whose keys were changed.

    venv/bin/pip install -r scripts/requirements.txt
    venv/bin/python scripts/golden_texts.py

cleaning.json has texts, many of them damaged at random, with the three ways to clean them. tokens.json has changes of the directories
of tests/golden/zero_shot with the ids of some texts, or null where the library fails. With a number as its argument the script
prints as many damaged texts in place of that, for a comparison at large.

See also: golden_zero_shot.py, which writes the directories, and ftfy_tables.py.
"""

import contextlib
import gzip
import html
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import open_clip
import sentencepiece
import transformers as hf
from ftfy.chardata import CHARMAP_ENCODINGS
from open_clip.tokenizer import SimpleTokenizer, get_clean_fn

from golden_zero_shot import CONTEXT, DIRECTORY, GOLDEN, clip_vocabulary

DATA = GOLDEN.parent / "data" / "text"
CLEANINGS = ("lower", "whitespace", "canonicalize")
WORDS = """the cat dog café naïve “best” cat’s toy — … fiancée Größe Ünïcødé Ελλάδα σοφός ΟΔΟΣ Москва кот ёж 東京 猫 ねこ カナ 한국어 שלום
سلام हिन्दी 😀 👩‍👩‍👧 ｃａｔ ＣＡＴ ｶﾀｶﾅ ﬁne ﬂy ﬃ ŉ ǆ à la mode às àquele 10 € £5 ½ ² ± × ÷ ¿que? ¡hola! l’été œuvre ŒUVRE Žižek Łódź İstanbul
ışık ß ẞ Å e\u0301 A\u030a 1\u00a0000 ™ ® © «oui» „gut“ ‚so‘ ‹a› № § ¶ † ‡ • ◊ Δ ∑ √ π ∞""".split()
REFERENCES = """&amp; &lt; &gt; &quot; &#39; &#x27; &nbsp; &eacute; &EACUTE; &Eacute &notit; &not &amp;amp; &amp;lt;b&amp;gt; &#150; &#x80; &#0; &#13;
&#xD800; &#1114112; &#99999999999; &#xfffe; &#1; &#xFDD0; &copy &COPY; &ampx &hellip; &NotEqualTilde; &fjlig; &ThickSpace; & &; &#; &#x;
&#12a; &szlig; &SZLIG; &nTILDE; &bne; &frac12; &FRAC12; &LT; &Gt &#1234 &ffilig; &AMP &NBSP; &EURO; &sup2; &SUP2; &emsp; &shy;""".split()
CONTROLS = ["\0", "\7", "\v", "\f", "\x1a", "\x1b[31m", "\x1b[0;1m", "\x1b[٣m", "\x1c", "\x1f", "\x7f", "\x80", "\x85", "\x92", "\x99", "\x9f",
            "\xa0", "\xad", "\ufeff", "\u2028", "\u2029", "\u200b", "\u200d", "\u202e", "\u206a", "\ufff9", "\ufffc", "\ufffd", "\r", "\n",
            "\r\n", "\t", "  ", "<b>", "<", "\u3000", "\u2003", "_", "?"]
MOJIBAKE = ["A", "É", "Ã", "Â", "â€", "â€™", "Ã©", "Ã ", "â€œ", "â€�", "Ð", "Ñ", "Î", "вЂ", "Г", " Ã la", "fÃ cil", "Ãƒ", "Â£", "ï»¿", "ðŸ˜", "€",
            "œ", "°"]
TEXTS = ["a photo of a cat", "A Photo  of a DOG.", "the cat's toy: 2 okapis, café", "number seven", "cats &amp; dogs", "the “best” cat’s toy",
         "ｃａｔ", "ﬁne", "cafÃ©", "CAFE\u0301", "ΟΔΟΣ ΟΔΟΣ", "İstanbul", "<start_of_text>cat<END_OF_TEXT> <end_of_text>", "<|startoftext|>a<|endoftext|>",
         "<eos>dog </s> cat <UNK><bos>", "don't DON'T I’LL", "東京の猫 😀👩‍👩‍👧", "a\u200bb\u00a0c\u3000d\x1ce", "snake_case, punct-uation!?", "", " ",
         "people people people people people people people people people people people people people people on the beach"]


def cesu8(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    codes = [int.from_bytes(units[at:at + 2], "little") for at in range(0, len(units), 2)]
    return b"".join(b"\xc0\x80" if code == 0 else chr(code).encode("utf-8", "surrogatepass") for code in codes)


def damaged(source: random.Random) -> str:
    """A text of words, references and controls, parts of which were decoded by a wrong encoding."""
    def piece() -> str:
        kind = source.random()
        if kind < 0.72:
            return source.choice(WORDS if kind < 0.45 else REFERENCES if kind < 0.6 else CONTROLS)
        if kind < 0.8:
            low, high = source.choice([(0x20, 0x7f), (0x80, 0x180), (0x370, 0x460), (0x2000, 0x2600), (0xfb00, 0xfb10), (0xff00, 0x10000)])
            return chr(source.randrange(low, high))
        return source.choice(MOJIBAKE) if kind < 0.9 else chr(source.choice([*range(0x20, 0xd800), *range(0xe000, 0x2fa20)]))

    text = "".join(piece() + source.choice(["", "", " ", " "]) for _ in range(source.randrange(1, 9)))
    for _ in range(source.choice([0, 0, 1, 1, 1, 2, 3])):
        start, end = sorted(source.randrange(len(text) + 1) for _ in range(2)) if source.random() < 0.3 else (0, len(text))
        part = text[start:end]
        data = cesu8(part) if source.random() < 0.15 else part.encode("utf-8")
        if source.random() < 0.15:
            data = data.replace(b"\xa0", b" ")
        if data and source.random() < 0.1:
            at = source.randrange(len(data))
            data = data[:at] + source.choice([b"?", b"\x1a", b"\x1a"]) + data[at + 1:]
        text = text[:start] + data.decode(source.choice(CHARMAP_ENCODINGS)) + text[end:]
    if source.random() < 0.15:
        text = html.escape(text)
    return text + source.choice(["À\n", "í\xa0\x80í\xb0\n", "\n"]) if source.random() < 0.03 else text


def cleaning() -> None:
    source = random.Random(35)
    texts = TEXTS + REFERENCES + [damaged(source) for _ in range(250)]
    cases = [[text, *(get_clean_fn(name)(text) for name in CLEANINGS)] for text in texts]
    write("cleaning.json", cases)


def write(name: str, cases: list) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (DATA / name).write_text(f"[\n{lines}\n]\n")
    print(f"{name}: {len(cases)} cases, {(DATA / name).stat().st_size / 1000:.0f} kB")


def edited(directory: Path, file: str, keys: dict) -> None:
    path = directory / file
    content = json.loads(path.read_text()) if path.is_file() else {}
    target = content
    if file == "open_clip_config.json":
        target = content["model_cfg"]["text_cfg"]
    for key, value in keys.items():
        if value == "absent":
            target.pop(key, None)
        else:
            target[key] = value
    path.write_text(json.dumps(content))


def simple_tokenizer(directory: Path, options: dict):
    """open_clip's own tokenizer with the merges of the directory in place of its own."""
    path = directory / "merges.gz"
    _, merges = clip_vocabulary()
    path.write_bytes(gzip.compress("\n".join(["#version: 0.2", *(" ".join(merge) for merge in merges)]).encode()))
    tokenizer = SimpleTokenizer(bpe_path=str(path), context_length=CONTEXT, **options)

    def ids(text: str) -> list[int]:
        row = tokenizer(text)[0].tolist()
        return row[:row.index(tokenizer.eot_token_id) + 1] if "<END" not in text.upper() else row[:len(tokenizer.encode(text)) + 2]
    return ids


def sentencepiece_model() -> None:
    """A model with SigLIP's form, without its table of normalisation, which is 240 kB."""
    source = random.Random(3)
    words = WORDS + "a photo of a cat a dog okapi drawing number seven people on the beach toy".split()
    # The file contains the path of the corpus.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        corpus = Path("corpus.txt")
        corpus.write_text("\n".join(" ".join(source.choice(words) for _ in range(8)) for _ in range(400)))
        sentencepiece.SentencePieceTrainer.train(
            input=str(corpus), model_prefix="spiece", vocab_size=200, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, model_type="unigram",
            normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2)
        shutil.copy("spiece.model", DATA)


def tokens(base: str, edits: dict[str, dict], remove=(), add=()) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for file in (DIRECTORY / base).iterdir():
            if file.suffix != ".safetensors" and file.name not in remove:
                shutil.copy(file, directory)
        for file in add:
            shutil.copy(DATA / file, directory)
        for file, keys in edits.items():
            edited(directory, file, keys)
        try:
            if base == "open_clip":
                text = json.loads((directory / "open_clip_config.json").read_text())["model_cfg"]["text_cfg"]
                if text.get("hf_tokenizer_name"):
                    tokenizer = open_clip.get_tokenizer(f"local-dir:{directory}")
                    ids = [tokenizer(text)[0].tolist() for text in TEXTS]
                else:
                    tokenizer = simple_tokenizer(directory, text.get("tokenizer_kwargs", {}))
                    ids = [tokenizer(text) for text in TEXTS]
            else:
                tokenizer = hf.AutoTokenizer.from_pretrained(directory)
                assert "clip" not in base or tokenizer.padding_side == "right", "texts would depend on each other"
                padding = {} if "clip" in base else {"padding": "max_length"}
                length = min(CONTEXT, tokenizer.model_max_length)
                ids = [tokenizer(text, max_length=length, truncation=True, **padding).input_ids for text in TEXTS]
        except Exception as error:
            print(f"  {base} {edits}: {type(error).__name__}: {str(error)[:90]!r}")
            ids = None
    return {"base": base, "edits": edits, "remove": list(remove), "add": list(add), "ids": ids}


def all_tokens() -> None:
    cases = []
    config = "tokenizer_config.json"
    classes = ["absent", "CLIPTokenizerFast", "GemmaTokenizer", "Siglip2Tokenizer", "TokenizersBackend", "PreTrainedTokenizerFast"]
    for base, models in [("hf_clip", ["clip"]), ("hf_siglip", ["siglip"]), ("hf_siglip2", ["siglip", "siglip2"])]:
        for model in models:
            # SigLIP's vocabulary is no byte-pair model, which three of the classes need, so hipvit refuses it.
            for name in classes[::4] + classes[5:] if base == "hf_siglip" else classes:
                cases.append(tokens(base, {"config.json": {"model_type": model}, config: {"tokenizer_class": name}}))
    added = {"content": "okapi", "lstrip": True, "rstrip": True, "normalized": True, "single_word": True, "special": False}
    special = {"__type": "AddedToken", "content": "<|endoftext|>", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    keys = [
        {"do_lower_case": False}, {"clean_up_tokenization_spaces": True}, {"add_prefix_space": True}, {"add_bos_token": True, "add_eos_token": True},
        {"split_special_tokens": True}, {"truncation_side": "left"}, {"model_max_length": 10**30}, {"errors": "strict"}, {"max_length": 5},
        {"added_tokens_decoder": {"3": added}}, {"extra_special_tokens": ["photo"]}, {"additional_special_tokens": ["photo"]}, {"sep_token": "cat"},
        {"unk_token": special}, {"eos_token": special}, {"unk_token": "a"}, {"image_token": "dog"}, {"from_slow": True}, {"use_fast": False},
        {"legacy": False}, {"strip_accents": True}, {"tokenize_chinese_chars": False}, {"stride": 3},
    ]
    for base in ("hf_clip", "hf_siglip", "hf_siglip2"):
        cases += [tokens(base, {config: edit}) for edit in keys]
        cases.append(tokens(base, {"special_tokens_map.json": {"mask_token": {"content": "okapi", "lstrip": True, "normalized": True, "rstrip": False,
                                                                           "single_word": False}}}))
        cases.append(tokens(base, {"added_tokens.json": {"okapi": 900}}))
        cases.append(tokens(base, {"tokenizer.json": {"normalizer": None}}))
        cases.append(tokens(base, {"tokenizer.json": {"post_processor": None}}))
        cases.append(tokens(base, {}, [config]))
    for edit in [{"padding_side": "left"}, {"padding_side": "absent"}, {"pad_token": "a"}, {"pad_token": "absent"}, {"pad_token": None}]:
        cases += [tokens(base, {config: edit}) for base in ("hf_siglip", "hf_siglip2")]
    cases.append(tokens("hf_clip", {config: {"model_max_length": 8}}))
    cases.append(tokens("hf_clip_older", {}))
    cases.append(tokens("hf_clip_older", {config: {"tokenizer_class": "CLIPTokenizerFast", "unk_token": special}}))
    options = [{}, {"clean": "lower"}, {"clean": "whitespace"}, {"clean": "canonicalize"}, {"reduction_mask": ""},
               {"additional_special_tokens": None}]
    for edit in options:
        cases.append(tokens("open_clip", {"open_clip_config.json": {"tokenizer_kwargs": edit}}))
    for edit in [*options[:4], {"strip_sep_token": True}, {"language": None}]:
        keys = {"hf_tokenizer_name": "org/name", "tokenizer_kwargs": edit}
        cases.append(tokens("open_clip", {"open_clip_config.json": keys, config: {"sep_token": "cat"}}))
    cases.append(tokens("open_clip", {"open_clip_config.json": {"hf_tokenizer_name": "org/name", "tokenizer_kwargs": {}},
                                      config: {"tokenizer_class": "absent", "padding_side": "left"}}))
    cases.append(tokens("open_clip", {"open_clip_config.json": {"tokenizer_kwargs": "absent"}}))
    for name in ("absent", "SiglipTokenizer"):
        for edit in ({}, {"do_lower_case": False}, {"truncation_side": "left"}, {"padding_side": "left"}):
            edits = {config: {"tokenizer_class": name, **edit}}
            cases.append(tokens("hf_siglip", edits, add=["spiece.model"]))
            cases.append(tokens("hf_siglip", edits, remove=["tokenizer.json"], add=["spiece.model"]))
    write("tokens.json", [{"texts": TEXTS}, *cases])


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    hf.logging.set_verbosity_error()
    if len(sys.argv) > 1:
        source = random.Random(1)
        cases = ([text, *(get_clean_fn(name)(text) for name in CLEANINGS)] for text in (damaged(source) for _ in range(int(sys.argv[1]))))
        print("[" + ",\n".join(json.dumps(case) for case in cases) + "]")
        return
    cleaning()
    sentencepiece_model()
    all_tokens()


if __name__ == "__main__":
    main()
