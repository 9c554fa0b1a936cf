"""Languages of speech: Whisper's codes (https://github.com/openai/whisper) and English names."""

from typing import Final

_TABLE: Final = """
en English, zh Chinese, de German, es Spanish, ru Russian, ko Korean, fr French, ja Japanese, pt Portuguese,
tr Turkish, pl Polish, ca Catalan, nl Dutch, ar Arabic, sv Swedish, it Italian, id Indonesian, hi Hindi,
fi Finnish, vi Vietnamese, he Hebrew, uk Ukrainian, el Greek, ms Malay, cs Czech, ro Romanian, da Danish,
hu Hungarian, ta Tamil, no Norwegian, th Thai, ur Urdu, hr Croatian, bg Bulgarian, lt Lithuanian, la Latin,
mi Maori, ml Malayalam, cy Welsh, sk Slovak, te Telugu, fa Persian, lv Latvian, bn Bengali, sr Serbian,
az Azerbaijani, sl Slovenian, kn Kannada, et Estonian, mk Macedonian, br Breton, eu Basque, is Icelandic,
hy Armenian, ne Nepali, mn Mongolian, bs Bosnian, kk Kazakh, sq Albanian, sw Swahili, gl Galician, mr Marathi,
pa Punjabi, si Sinhala, km Khmer, sn Shona, yo Yoruba, so Somali, af Afrikaans, oc Occitan, ka Georgian,
be Belarusian, tg Tajik, sd Sindhi, gu Gujarati, am Amharic, yi Yiddish, lo Lao, uz Uzbek, fo Faroese,
ht Haitian Creole, ps Pashto, tk Turkmen, nn Nynorsk, mt Maltese, sa Sanskrit, lb Luxembourgish, my Myanmar,
bo Tibetan, tl Tagalog, mg Malagasy, as Assamese, tt Tatar, haw Hawaiian, ln Lingala, ha Hausa, ba Bashkir,
jw Javanese, su Sundanese, yue Cantonese"""
NAMES: Final = {code: name for code, _, name in (row.strip().partition(" ") for row in _TABLE.split(","))}
_CODES: Final = {name.lower(): code for code, name in NAMES.items()} | {
    "mandarin": "zh", "castilian": "es", "flemish": "nl", "burmese": "my", "farsi": "fa", "moldavian": "ro",
    "iw": "he", "jv": "jw",
}  # fmt: skip


def code(language: str) -> str | None:
    """Return the code of a language given by an English name, or by a code with or without a region (`pt-BR`)."""
    key = language.strip().lower()
    short = key.partition("-")[0]
    return short if short in NAMES else _CODES.get(key) or _CODES.get(short)


def name(language: str) -> str:
    """Return the English name of a language given as in `code`; capitalize an unknown one."""
    known = code(language)
    return language.capitalize() if known is None else NAMES[known]
