"""Which numbers of a source does its translation lack?

    lost("At 7:30 pm 3 of 1,200 came.", "Um 19.30 Uhr kamen drei von 120.")        # ["1,200"]

A number is looked for as it stands, whatever its separators (1,234.50 = 1.234,5 = 1 234,5). Where that fails, it is
looked for in the other forms that translators rightly give it, each one line of READINGS. What is left was lost or
changed.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import NamedTuple
from unicodedata import decimal

_WHOLE = r"\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+"  # groups of three digits are one number
# With a fraction, but not one of three digits, nor in dates, versions and lists (1.2.2003); or without.
NUMBER = re.compile(rf"(?<![\d.,])({_WHOLE}|\d+)[.,](?!\d{{3}}(?!\d))(\d+)(?![.,]?\d)|({_WHOLE}(?!\d)|\d+)")
DIGITS = re.compile(r"\d+")
CLOCK = re.compile(
    r"\d[:.h]\d\d|\d ?[hч]\b|\b[ap]\.? ?m\b|o.clock|\b(?:gmt|utc|uhr|heure|hora|ore\b|час|годин|godz|hodin)|[時时点]",
    re.IGNORECASE,
)
HALF = re.compile(r"halb|\bhal[fv]|\bdemi|\bmeia|\bmedi[ao]|\bmezz|\bпол|\bпів|\bpół|\bpůl|半", re.IGNORECASE)
CUT = re.compile(r"[.,]\d?0$")  # 1,50 is no thousandth of 1,500 but what was left of it
MYRIADS = re.compile("[万萬億亿兆]")  # East Asian units of 10^4, 10^8 and 10^12
UNITS = (  # of English, and how many metric ones each is
    (re.compile(r"\b(?:miles?|mph)\b", re.IGNORECASE), (1.609,)),
    (re.compile(r"\binch(?:es)?\b", re.IGNORECASE), (2.54, 25.4)),
    (re.compile(r"\bf(?:ee|oo)t\b|\d'(?!\w)", re.IGNORECASE), (0.3048, 30.48)),
    (re.compile(r"\b(?:pounds?|lbs?)\b", re.IGNORECASE), (0.4536,)),
    (re.compile(r"\bacres?\b", re.IGNORECASE), (0.4047,)),
)
DEGREES = re.compile(r"\d\W?degrees?\b|°", re.IGNORECASE)
BUDGET = 50_000  # characters to look at for other forms of missing numbers: some in an endless text, all in a sentence
ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")

NUMERALS = (*range(1, 21), *range(30, 101, 10), 1000)  # what SPELLED spells, in this order
# The words that say so, in small letters; "vier-" is every word that begins with vier, (?!f) not before an f. In a
# language that is not listed, a number that is spelled out counts as lost: add its line.
SPELLED = {
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


class Sought(NamedTuple):
    """A number of the source that the translation does not have as it is, and where a reading may look for it."""

    value: str  # 1234.5
    written: str  # 1.234,50
    source: str
    output: str
    spare: dict[str, str]  # the numbers of the translation that are not the source's

    @property
    def whole(self) -> int | None:
        """The number, where it is whole and not too large to have another form."""
        return int(self.value) if self.value.isdigit() and len(self.value) < 6 else None


def lost(source: str, output: str) -> list[str]:
    """The numbers of a source, as written there, that its translation has in no form."""
    if not DIGITS.search(source):
        return []
    wanted, have = numbers(source), numbers(output)
    missing = [value for value in wanted if value not in have and value != "0"]
    if not missing:
        return []
    missing = missing[: 1 + BUDGET // (len(source) + len(output))]
    spare = {value: written for value, written in have.items() if value not in wanted}
    sought = (Sought(value, wanted[value], source, output, spare) for value in missing)
    return [one.written for one in sought if not any(reading(one) for reading in READINGS)]


def numbers(text: str) -> dict[str, str]:
    """Value -> as written, such as {"1234.5": "1.234,50"}"""
    found: dict[str, str] = {}
    for match in NUMBER.finditer(text):
        whole, fraction, alone = match.groups()
        value = plain("".join(DIGITS.findall(alone or whole))).lstrip("0") or "0"
        if fraction and (fraction := plain(fraction).rstrip("0")):
            value = f"{value}.{fraction}"
        found.setdefault(value, match[0])
    return found


def plain(digits: str) -> str:
    """Digits of any script as 0 to 9; `int` refuses more than some thousand of them."""
    return digits if digits.isascii() else "".join(str(decimal(digit)) for digit in digits)


def parts(text: str) -> list[str]:
    """Every run of digits, without zeros before it: 12.05 -> 12, 5. What is all zeros stays: 5.00 -> 5, 00"""
    return [plain(digits).lstrip("0") or digits for digits in DIGITS.findall(text)]


def within(few: Sequence[str], many: Sequence[str]) -> bool:
    """Whether some parts stand side by side among others."""
    return any(few == many[place : place + len(few)] for place in range(len(many) - len(few) + 1))


# ----------------------------------------------------------------------------------------------------------- readings


def cut_elsewhere(sought: Sought) -> bool:
    """12.30 = 12:30; on June 5 200 people = on 5 June 200 people"""
    return within(parts(sought.written), parts(sought.output))


def in_other_units(sought: Sought) -> bool:
    """1,500 = 1.5 thousand, 15,000 = 1.5万: the point has moved, by thousands or, among myriads, anywhere."""
    step = 1 if MYRIADS.search(sought.source + sought.output) else 3
    spare = {Decimal(value) for value, written in sought.spare.items() if not CUT.search(written)}
    return any(Decimal(sought.value).scaleb(places) in spare for places in range(-9, 10, step))


def in_metric_units(sought: Sought) -> bool:
    """10 miles = 16 km, 80 °F = 27 °C; rounded, and only where an English unit is spoken of."""
    texts, value = f"{sought.source} {sought.output}", float(sought.value)
    likely = [value * factor for unit, factors in UNITS if unit.search(texts) for factor in factors]
    likely += [value / factor for unit, factors in UNITS if unit.search(texts) for factor in factors]
    if DEGREES.search(texts):
        likely += [(value - 32) / 1.8, value / 1.8, value * 1.8, value * 1.8 + 32]
    return any(abs(float(other) - one) < max(1, one / 20) for other in sought.spare for one in likely)


def by_the_clock(sought: Sought) -> bool:
    """7 pm = 19:00, 0530 = 5:30, where one side speaks of the time."""
    if not (CLOCK.search(sought.source) or CLOCK.search(sought.output)):
        return False
    if len(sought.written) == 4 and sought.whole:
        return within([str(part) for part in divmod(sought.whole, 100) if part], parts(sought.output))
    hour, *rest = (int(part[:18]) for part in parts(sought.written))
    minutes, spare = [str(minute) for minute in rest if minute], sought.spare.values()
    return hour < 25 and (
        any(within([str(other), *minutes], parts(" ".join(spare))) for other in (hour + 12, hour - 12))
        or any(len(digits) == 4 and int(digits[:2]) == sought.whole for digits in spare if digits.isdigit())
    )


def in_halves(sought: Sought) -> bool:
    """30 minutes = half an hour; 2.5 = two and a half; 2:30 = half past two, or half of the third hour."""
    if not HALF.search(sought.output):
        return False
    if sought.value == "30":
        return True
    counts = [int(sought.value[:-2])] if re.fullmatch(r"\d\d?\.5", sought.value) else []
    if sought.whole and re.search(rf"\b{sought.written}:30", sought.source):
        counts = [sought.whole, sought.whole + 1]
    return any(says(count, sought.output) or str(count) in parts(sought.output) for count in counts)


def as_a_year(sought: Sought) -> bool:
    """1990s = the 90s = the nineties; 2015-16 = 2015-2016; 1800s = the 19th century"""
    year, spare = sought.value, sought.spare.values()
    if not re.fullmatch("1[0-9]{3}|20[0-9]{2}", year):
        return len(year) == 2 and any(len(full) == 4 and full.endswith(year) for full in spare)
    century = sought._replace(value=str(int(year[:2]) + 1))
    return (
        year[2:] in spare
        or (year[3] == "0" and says(int(year[2:]), sought.output))
        or (year[2:] == "00" and (century.value in spare or in_roman(century)))
    )


def as_a_month(sought: Sought) -> bool:
    """9月 = September: East Asia numbers its months."""
    return re.search(rf"{re.escape(sought.written)}\s*月", sought.source) is not None


def in_roman(sought: Sought) -> bool:
    """19th century = XIX; French writes XIXe"""
    if not sought.whole or sought.whole > 39:
        return False
    tens, ones = divmod(sought.whole, 10)
    numeral = re.compile(rf"\b{'X' * tens}{ROMAN[ones]}(?:e|ème)?\b")
    return bool(numeral.search(sought.output)) and not numeral.search(sought.source)


def with_a_name(sought: Sought) -> bool:
    """l10n files = localization files: nothing of the name that the number was part of is there, nor another number."""
    if sought.spare:
        return False
    letter, written = r"[^\W\d_]", re.escape(sought.written)
    names = re.findall(rf"(?<!{letter})({letter}*)(?<!\d){written}(?!\d)({letter}*)", sought.source)
    return all(begin and not re.search(rf"{begin}(?:{end}|(?!{letter}))", sought.output) for begin, end in names)


def in_words(sought: Sought) -> bool:
    """25 = twenty-five, unless it is part of a name (apache2); 1 = an article only where it counts something and no
    other number stands there instead.
    """
    if sought.whole is None or not re.search(rf"(?<![^\W\d_]){re.escape(sought.written)}", sought.source):
        return False
    if sought.whole == 1 and (sought.spare or not re.search(r"\b1 [^\W\d]", sought.source)):
        return False
    return says(sought.whole, sought.output)


READINGS: tuple[Callable[[Sought], bool], ...] = (
    cut_elsewhere,
    in_other_units,
    in_metric_units,
    by_the_clock,
    in_halves,
    as_a_year,
    as_a_month,
    in_roman,
    with_a_name,
    in_words,
)


def says(number: int, text: str) -> bool:
    """Whether a text has the words for a number; where they are several, their order is not looked at."""
    needed = terms(number)
    return bool(needed) and all(word_for(term, alone=len(needed) == 1).search(text.lower()) for term in needed)


def terms(number: int) -> list[int]:
    """What a number is made of in words: 25,100 -> 20, 5, 1000, 100"""
    for unit in (1000, 100):
        if number >= unit:
            many, rest = divmod(number, unit)
            return [*(terms(many) if many > 1 else []), unit, *terms(rest)]
    if number in NUMERALS:
        return [number]
    return [number - number % 10, number % 10] if number else []


@cache
def word_for(number: int, *, alone: bool) -> re.Pattern[str]:
    """A word for one of NUMERALS: alone, where a word begins (East Asian text has no spaces), else in any place."""
    place = NUMERALS.index(number)
    words = [word for row in SPELLED.values() for word in row.split()[place].split("/")]
    either = "|".join(word[:-1] if word.endswith("-") else rf"{word}\b" for word in words)
    return re.compile(rf"(?:\b|(?<=[\u3000-\u9fff]))(?:{either})" if alone else either)
