"""Find the numbers of a source that its translation lacks.

    find_lost_numbers("At 7:30 pm 3 of 1,200 came.", "Um 19.30 Uhr kamen drei von 120.")        # ["1,200"]

A number is first searched with any separators (1,234.50 = 1.234,5 = 1 234,5), then in the other correct forms of
EQUIVALENT_FORMS. A number without a match was lost or changed.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import NamedTuple
from unicodedata import decimal

_WHOLE = r"\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+"  # groups of three digits are one number
# With a fraction, except three digits (thousands) and dates, versions or lists (1.2.2003); or without a fraction.
NUMBER = re.compile(rf"(?<![\d.,])({_WHOLE}|\d+)[.,](?!\d{{3}}(?!\d))(\d+)(?![.,]?\d)|({_WHOLE}(?!\d)|\d+)")
DIGITS = re.compile(r"\d+")
CLOCK_TIME = re.compile(
    r"\d[:.h]\d\d|\d ?[hч]\b|\b[ap]\.? ?m\b|o.clock|\b(?:gmt|utc|uhr|heure|hora|ore\b|час|годин|godz|hodin)|[時时点]",
    re.IGNORECASE,
)
HALF = re.compile(r"halb|\bhal[fv]|\bdemi|\bmeia|\bmedi[ao]|\bmezz|\bпол|\bпів|\bpół|\bpůl|半", re.IGNORECASE)
ROUND_FRACTION = re.compile(r"[.,]\d?0$")  # 1,50 is not 1,500 / 1000 but a truncated 1,500
MYRIADS = re.compile("[万萬億亿兆]")  # East Asian units of 10^4, 10^8 and 10^12
ENGLISH_UNITS = (  # with their values in metric units
    (re.compile(r"\b(?:miles?|mph)\b", re.IGNORECASE), (1.609,)),
    (re.compile(r"\binch(?:es)?\b", re.IGNORECASE), (2.54, 25.4)),
    (re.compile(r"\bf(?:ee|oo)t\b|\d'(?!\w)", re.IGNORECASE), (0.3048, 30.48)),
    (re.compile(r"\b(?:pounds?|lbs?)\b", re.IGNORECASE), (0.4536,)),
    (re.compile(r"\bacres?\b", re.IGNORECASE), (0.4047,)),
)
DEGREES = re.compile(r"\d\W?degrees?\b|°", re.IGNORECASE)
MAX_SEARCHED_CHARS = 50_000  # for other forms: enough for a sentence, and a bound for very long texts
ROMAN_DIGITS = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")

NUMERALS = (*range(1, 21), *range(30, 101, 10), 1000)  # the numbers of each line of NUMBER_WORDS, in this order
# Lowercase patterns; "vier-" matches every word that begins with vier, (?!f) excludes a following f. In other languages
# a number that is spelled out counts as lost: add a line for the language.
NUMBER_WORDS = {
    "en": """one/once/first/a/an two/second/twice/double three/third/thirds/triple four/fourth five/fifth six/sixth
        seven/seventh eight/eighth nine/ninth ten/tenth eleven- twel- thirteen- fourteen- fifteen- sixteen- seventeen-
        eighteen- nineteen- twent- thirt[yi]- fort[yi]- fift[yi]- sixt[yi]- sevent[yi]- eight[yi]- ninet[yi]- hundred-
        thousand-""",
    "de": """ein/eine/einen/einem/einer/eines/eins/einmal/erste- zwei(?!f)- drei-/dritt- vier- fünf- sechs- sieb-
        acht(?!u)- neun- zehn- elf- zwölf- dreizehn- vierzehn- fünfzehn- sechzehn- siebzehn- achtzehn- neunzehn-
        zwanzig- drei(?:ß|ss)ig- vierzig- fünfzig- sechzig- siebzig- achtzig- neunzig- hundert-/einhundert-
        tausend-/eintausend-""",
    "nl": """een/één/eerste twee- drie-/derde vier- vijf- zes/zesde zeven- acht(?!e)- negen- tien- elf- twaalf- dertien-
        veertien- vijftien- zestien- zeventien- achttien- negentien- twintig- dertig- veertig- vijftig- zestig-
        zeventig- tachtig- negentig- honderd- duizend-""",
    "sv": """en/ett/första två-/andra tre/tredje fyra/fjärde fem/femte sex/sjätte sju/sjunde åtta/åttonde nio/nionde
        tio/tionde elva/elfte tolv- tretton- fjorton- femton- sexton- sjutton- arton- nitton- tjugo- trettio- fyrtio-
        femtio- sextio- sjuttio- åttio- nittio- hundra- tusen-""",
    "fr": """un/une/premi- deux-/second/seconde/bidim- trois-/tridim- quatre-/quatri- cinq- six/sixi- sept/septi- huit-
        neuf/neuvi- dix/dixi-/dizaine onz- douz- treiz- quatorz- quinz- seiz- dix-sept- dix-huit- dix-neuf- vingt-
        trent- quarant- cinquant- soixant- soixante-dix- quatre-vingt- quatre-vingt-dix- cent/cents/centaine-/centi-
        mille-/milli[eè]-""",
    "es": """un/una/uno/primer- dos/segund[oa]/doble/bidim- tres/tercer-/tridim- cuatro/cuart[oa] cinco/quint[oa]
        seis/sext[oa] siete/séptim- ocho/octav- nueve/noven- diez/décim- once doce trece catorce quince dieciséis
        diecisiete dieciocho diecinueve veint- treint- cuarent- cincuent- sesent- setent- ochent- novent-
        cien/ciento-/cientas mil/miles/milésim-""",
    "pt": """um/uma/primeir- dois/duas/segund[oa](?!-)/duz- três/terceir[oa](?!-)/trez-/tridim- quatro-/quart[oa](?!-)
        cinco/quint[oa](?!-)/quinh- seis/sext[oa](?!-)/seisc- sete/sétim-/setec- oito-/oitav- nove/nono/novec-
        dez/dezena-/décim- onze doze treze [cq]u?atorze quinze dez[ae]sseis dez[ae]ssete dezoito dez[ae]nove vint-
        trint- quarent- cinquent- sessent- setent- oitent- novent- cem/cento-/centen-/zento-/hento-
        mil/milhar-/milésim-""",
    "it": """un/una/uno/prim[oaie] due/second[oa]/bidim- tre/terz[oa]/tridim- quattro/quart[oa] cinque/quint[oa]
        sei/sest[oa] sette/settim[oa] otto/ottav- nove/nono dieci/decim- undic- dodic- tredic- quattordic- quindic-
        sedic- diciassett- diciott- diciannov- vent[iuo]- trent[aou]- quarant- cinquant- sessant- settant- ottant-
        novant- cento-/centinai- mill[ei]/mila""",
    "ru": """од[ин]-/перв-/раз/час два/две/дву-/двое/двои-/двой-/втор-/оба/обе/пар[аыу]
        три/тр[её]х-/тр[её]м-/трет[иь]-/тро[ей]- четыр-/четв[её]р- пят(?!н)- шест- семь/семи/семью/семи[лмдч]-/седьм-
        вос[ье]м- девят- десят- одиннадцат- двенадцат- тринадцат- четырнадцат- пятнадцат- шестнадцат- семнадцат-
        восемнадцат- девятнадцат- двадцат- тридцат- сорок- пят[ьи]десят- шест[ьи]десят- сем[ьи]десят- вос[ье]м[ьи]десят-
        девяност- сто/ста/сти/сот/сотен/сотн-/соты-/столет- тысяч-""",
    "uk": """од[ин]-/перш-/раз два/дві/дво-/друг[иоа]- три/трьо-/трет-/троє- чотир-/четвер(?!г)- п.ят(?!н)- ш[іо]ст-
        сім/семи/сьом- вісім-/восьм- дев.ят- десят- одинадцят- дванадцят- тринадцят- чотирнадцят- п.ятнадцят-
        шістнадцят- сімнадцят- вісімнадцят- дев.ятнадцят- двадцят- тридцят- сорок- п.ятдесят- шістдесят- сімдесят-
        вісімдесят- дев.яност- сто/ста/сті/сот/сотен/сотн- тисяч-""",
    "pl": """jed[en]-/pierw- dw[aóu]-/drug- trzy-/trze[chm]-/trój- cztere-/cztery/czwarty/czwarta/czwartego
        pię[tć]-/piąty/piąta/piątego sześć-/szó- siedem/siedmi-/siódm- osiem/ośm-/ósm- dziewi[ęą]- dziesi[ęą]- jedena-
        dwuna-/dwana- trzyna- czterna- piętna- szesna- siedemna- osiemna- dziewiętna- dwudz- trzydz- czterdz- pięćdz-
        sześćdz- siedemdz- osiemdz- dziewięćdz- sto/stu/set tysi[ąę]-""",
    "cs": """jed[en]-/prv[ní]- dva/dvě-/dvou-/dvoj-/druh[áéoý]- tři-/tře[mt]-/troj- čtyř-/čtvrt[áéoý]- pět-/pát[áéoý]-
        šest- sedm- osm- dev[ěá]t- des[eá]t- jedená- dvaná- třiná- čtrná- patná- šestná- sedmná- osmná- devatená- dvac-
        třic- čtyřic- padesát- šedesát- sedmdesát- osmdesát- devadesát- sto/stech/set tisíc-""",
    "ja zh": """[一ひ]- [二両两ふ]- [三み]- 四- 五- 六- 七- 八- 九- 十- 十一- 十二- 十三- 十四- 十五- 十六- 十七- 十八-
        十九- 二十- 三十- 四十- 五十- 六十- 七十- 八十- 九十- 百- 千-""",
}


class MissingNumber(NamedTuple):
    """A number that the translation lacks in its source form, with the texts to search for other forms."""

    value: str  # 1234.5
    as_written: str  # 1.234,50
    source: str
    output: str
    extra_numbers: dict[str, str]  # value -> as written: numbers that only the translation has

    @property
    def small_integer(self) -> int | None:
        """The number if it is an integer below 100,000; larger ones have no other form."""
        return int(self.value) if self.value.isdigit() and len(self.value) < 6 else None


def find_lost_numbers(source: str, output: str) -> list[str]:
    """The numbers of a source, as written there, that its translation does not have in any form."""
    if not DIGITS.search(source):
        return []
    source_numbers, output_numbers = parse_numbers(source), parse_numbers(output)
    missing = [value for value in source_numbers if value not in output_numbers and value != "0"]
    if not missing:
        return []
    missing = missing[: 1 + MAX_SEARCHED_CHARS // (len(source) + len(output))]
    extra = {value: written for value, written in output_numbers.items() if value not in source_numbers}
    candidates = (MissingNumber(value, source_numbers[value], source, output, extra) for value in missing)
    return [number.as_written for number in candidates if not any(has_form(number) for has_form in EQUIVALENT_FORMS)]


def parse_numbers(text: str) -> dict[str, str]:
    """Value -> as written, such as {"1234.5": "1.234,50"}"""
    written: dict[str, str] = {}
    for match in NUMBER.finditer(text):
        whole_part, fraction, integer = match.groups()
        value = to_ascii_digits("".join(DIGITS.findall(integer or whole_part))).lstrip("0") or "0"
        if fraction and (fraction := to_ascii_digits(fraction).rstrip("0")):
            value = f"{value}.{fraction}"
        written.setdefault(value, match[0])
    return written


def to_ascii_digits(digits: str) -> str:
    """Convert digits of any script to 0-9; `int` raises an error for more than a few thousand digits."""
    return digits if digits.isascii() else "".join(str(decimal(digit)) for digit in digits)


def digit_runs(text: str) -> list[str]:
    """Every run of digits, without leading zeros: 12.05 -> 12, 5. A run of zeros is kept: 5.00 -> 5, 00"""
    return [to_ascii_digits(digits).lstrip("0") or digits for digits in DIGITS.findall(text)]


def contains_sequence(sequence: Sequence[str], part: Sequence[str]) -> bool:
    """Whether the items of `part` occur next to each other in `sequence`."""
    return any(part == sequence[start : start + len(part)] for start in range(len(sequence) - len(part) + 1))


# ----------------------------------------------------------------------------------------------------- equivalent forms


def has_other_separators(number: MissingNumber) -> bool:
    """12.30 = 12:30; on June 5 200 people = on 5 June 200 people"""
    return contains_sequence(digit_runs(number.output), digit_runs(number.as_written))


def is_in_other_magnitude(number: MissingNumber) -> bool:
    """1,500 = 1.5 thousand, 15,000 = 1.5万: the point moves by three places, or with myriads by any number."""
    step = 1 if MYRIADS.search(number.source + number.output) else 3
    extra = {Decimal(value) for value, written in number.extra_numbers.items() if not ROUND_FRACTION.search(written)}
    return any(Decimal(number.value).scaleb(places) in extra for places in range(-9, 10, step))


def is_in_metric_units(number: MissingNumber) -> bool:
    """10 miles = 16 km, 80 °F = 27 °C; rounded, and only if a text mentions an English unit."""
    texts, value = f"{number.source} {number.output}", float(number.value)
    likely = [value * factor for unit, factors in ENGLISH_UNITS if unit.search(texts) for factor in factors]
    likely += [value / factor for unit, factors in ENGLISH_UNITS if unit.search(texts) for factor in factors]
    if DEGREES.search(texts):
        likely += [(value - 32) / 1.8, value / 1.8, value * 1.8, value * 1.8 + 32]
    return any(abs(float(extra) - guess) < max(1, guess / 20) for extra in number.extra_numbers for guess in likely)


def is_clock_time(number: MissingNumber) -> bool:
    """7 pm = 19:00, 0530 = 5:30, if one side mentions a time."""
    if not (CLOCK_TIME.search(number.source) or CLOCK_TIME.search(number.output)):
        return False
    if len(number.as_written) == 4 and number.small_integer:
        hour_and_minute = [str(part) for part in divmod(number.small_integer, 100) if part]
        return contains_sequence(digit_runs(number.output), hour_and_minute)
    hour, *rest = (int(part[:18]) for part in digit_runs(number.as_written))
    minutes, extra = [str(minute) for minute in rest if minute], number.extra_numbers.values()
    return hour < 25 and (
        any(contains_sequence(digit_runs(" ".join(extra)), [str(other), *minutes]) for other in (hour + 12, hour - 12))
        or any(len(digits) == 4 and int(digits[:2]) == number.small_integer for digits in extra if digits.isdigit())
    )


def is_in_halves(number: MissingNumber) -> bool:
    """30 minutes = half an hour; 2.5 = two and a half; 2:30 = half past two, or German halb drei."""
    if not HALF.search(number.output):
        return False
    if number.value == "30":
        return True
    counts = [int(number.value[:-2])] if re.fullmatch(r"\d\d?\.5", number.value) else []
    if number.small_integer and re.search(rf"\b{number.as_written}:30", number.source):
        counts = [number.small_integer, number.small_integer + 1]
    return any(spells_number(number.output, count) or str(count) in digit_runs(number.output) for count in counts)


def is_year(number: MissingNumber) -> bool:
    """1990s = the 90s = the nineties; 2015-16 = 2015-2016; 1800s = the 19th century"""
    year, extra = number.value, number.extra_numbers.values()
    if not re.fullmatch("1[0-9]{3}|20[0-9]{2}", year):
        return len(year) == 2 and any(len(full) == 4 and full.endswith(year) for full in extra)
    century = number._replace(value=str(int(year[:2]) + 1))
    return (
        year[2:] in extra
        or (year[3] == "0" and spells_number(number.output, int(year[2:])))
        or (year[2:] == "00" and (century.value in extra or is_roman_numeral(century)))
    )


def is_month(number: MissingNumber) -> bool:
    """9月 = September: Chinese and Japanese number their months."""
    return re.search(rf"{re.escape(number.as_written)}\s*月", number.source) is not None


def is_roman_numeral(number: MissingNumber) -> bool:
    """19th century = XIX; French writes XIXe"""
    if not number.small_integer or number.small_integer > 39:
        return False
    tens, ones = divmod(number.small_integer, 10)
    numeral = re.compile(rf"\b{'X' * tens}{ROMAN_DIGITS[ones]}(?:e|ème)?\b")
    return bool(numeral.search(number.output)) and not numeral.search(number.source)


def is_part_of_missing_name(number: MissingNumber) -> bool:
    """l10n files = localization files: the output has neither the name with this number nor another number."""
    if number.extra_numbers:
        return False
    letter, written = r"[^\W\d_]", re.escape(number.as_written)
    names = re.findall(rf"(?<!{letter})({letter}*)(?<!\d){written}(?!\d)({letter}*)", number.source)
    return all(begin and not re.search(rf"{begin}(?:{end}|(?!{letter}))", number.output) for begin, end in names)


def is_spelled_out(number: MissingNumber) -> bool:
    """25 = twenty-five, unless it is part of a name (apache2); 1 = an article, if it counts something and the output
    has no other extra number.
    """
    if number.small_integer is None or not re.search(rf"(?<![^\W\d_]){re.escape(number.as_written)}", number.source):
        return False
    if number.small_integer == 1 and (number.extra_numbers or not re.search(r"\b1 [^\W\d]", number.source)):
        return False
    return spells_number(number.output, number.small_integer)


EQUIVALENT_FORMS: tuple[Callable[[MissingNumber], bool], ...] = (
    has_other_separators,
    is_in_other_magnitude,
    is_in_metric_units,
    is_clock_time,
    is_in_halves,
    is_year,
    is_month,
    is_roman_numeral,
    is_part_of_missing_name,
    is_spelled_out,
)


def spells_number(text: str, number: int) -> bool:
    """Whether a text has the words for a number, in any order."""
    terms = number_terms(number)
    return bool(terms) and all(word_pattern(term, alone=len(terms) == 1).search(text.lower()) for term in terms)


def number_terms(number: int) -> list[int]:
    """The numbers whose words spell a number: 25,100 -> 20, 5, 1000, 100"""
    for unit in (1000, 100):
        if number >= unit:
            count, rest = divmod(number, unit)
            return [*(number_terms(count) if count > 1 else []), unit, *number_terms(rest)]
    if number in NUMERALS:
        return [number]
    return [number - number % 10, number % 10] if number else []


@cache
def word_pattern(number: int, *, alone: bool) -> re.Pattern[str]:
    """Words for one of NUMERALS: if `alone`, only at the start of a word (East Asian text has no spaces)."""
    place = NUMERALS.index(number)
    words = [word for row in NUMBER_WORDS.values() for word in row.split()[place].split("/")]
    either = "|".join(word[:-1] if word.endswith("-") else rf"{word}\b" for word in words)
    return re.compile(rf"(?:\b|(?<=[\u3000-\u9fff]))(?:{either})" if alone else either)
