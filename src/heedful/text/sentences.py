"""Split text into sentences by rules. No PyTorch.

    split_sentences("Dr. Silva left. He was tired.", "en")    # [("Dr. Silva left.", " "), ("He was tired.", "")]

A sentence ends at a mark (. ! ? and those of other scripts), with its closing quotes and brackets, if a space follows;
scripts that are written without spaces need none. It does not end there if

- the next word is in lowercase and the text has capital letters: "Stop!" he said;
- the full stop belongs to a title: Dr. Silva;
- it belongs to an abbreviation of a word that numbers follow, and a number follows: No. 5;
- it belongs to another abbreviation, an initial or an ordinal number, and the next word is not one that often begins a
  sentence: in the U.S. Senate, am 3. Mai, but: in the U.S. He left.
"""

import re
from dataclasses import dataclass
from functools import cache

Segments = list[tuple[str, str]]  # text, and the space after it

OPENERS = "\"'\u00ab\u201e\u201c\u2018\u00bf\u00a1(\\[\u300c\u300e\uff08"
CLOSERS = "\"'\u00bb\u201c\u201d\u2019)\\]\u300d\u300f\uff09"
ENDS = ".!?\u2026\u061f\u06d4\u0964\u0965"
WIDE_ENDS = "\u3002\uff01\uff1f"  # no space follows
_END = re.compile(f"(?<![{ENDS}])[{ENDS}]+[{CLOSERS}]*(?P<space>\\s+)|[{WIDE_ENDS}]+[{CLOSERS}]*(?P<wide>\\s*)")
_NEXT_WORD = re.compile(f"[{OPENERS}\\-\u2013\u2014\\s]*(?P<word>[^\\W_]+)(?P<stop>\\.?)")
_INITIALS = re.compile(
    r"(?<!\w)[^\W\d_]\.[ \u00a0-]?[^\W\d_]$"  # U.S, т.е, z. B
    r"|(?<![\w'\u2019])(?!(?<=[a-z,] )I)(?=\w)[^\W\d_a-zß-ÿа-яё]$"  # J, but not: so do I
)
_ORDINAL = re.compile(r"\d{1,3}|[IVX]{1,5}")
WORD_STARTS = " \t\u00a0" + OPENERS.replace("\\", "")
LOOKBACK = 24  # characters; the words of tables are shorter


@dataclass(frozen=True)
class LanguageRules:
    """Words of a language before and after a full stop, in lowercase, without the last full stop."""

    titles: frozenset[str] = frozenset()  # a name follows, so they never end a sentence
    numbered: frozenset[str] = frozenset()  # abbreviations only if a number follows
    times: frozenset[str] = frozenset()  # they end a sentence unless one of `time_words` follows
    time_words: frozenset[str] = frozenset()
    abbreviations: frozenset[str] = frozenset()  # they end a sentence only before a starter
    starters: frozenset[str] = frozenset()  # words that often begin a sentence
    ordinals: bool = False  # whether ordinal numbers end in a full stop


def split_sentences(text: str, language: str = "") -> Segments:
    """Return [(sentence, space after it)]; joined, they are the text."""
    rules, parts, begin = language_rules(language), [], 0
    has_capitals = any(map(str.isupper, text))
    for match in _END.finditer(text):
        if not is_sentence_end(text, begin, match, rules, has_capitals):
            continue
        space = match["space"] or match["wide"] or ""
        parts.append((text[begin : match.end() - len(space)], space))
        begin = match.end()
    return [*parts, (text[begin:], "")] if begin < len(text) else parts


def is_sentence_end(text: str, begin: int, match: re.Match[str], rules: LanguageRules, has_capitals: bool) -> bool:
    """Whether the sentence that starts at `begin` ends at this mark."""
    following = _NEXT_WORD.match(text, match.end())
    if following is None:
        return False  # only marks follow
    next_word = following["word"].casefold()
    if match["space"] is None:
        return True  # a wide script
    if has_capitals and following["word"][0].islower():
        return False
    mark = match[0].rstrip()
    if mark != ".":
        return True
    before = text[max(begin, match.start() - LOOKBACK) : match.start()]
    word = before[max(map(before.rfind, WORD_STARTS)) + 1 :]
    folded = word.casefold()
    if folded in rules.titles:
        return False
    if folded in rules.times:
        return next_word not in rules.time_words
    if folded in rules.numbered and not word.isupper():
        return not next_word[0].isdigit()
    is_abbreviation = (
        folded in rules.abbreviations
        or _INITIALS.search(before[-6:]) is not None
        or (_ORDINAL.fullmatch(word) is not None and (rules.ordinals or len(word) == match.start() - begin))
    )
    is_initial = len(next_word) == 1 and following["stop"]
    return not is_abbreviation or (next_word in rules.starters and not is_initial)


@cache
def language_rules(language: str) -> LanguageRules:
    """The rules of a language code such as "pt" or "pt-BR"; those of all languages together for an unknown one."""
    known = RULES.get(language.partition("-")[0].partition("_")[0].lower())
    chosen = [known] if known else list(RULES.values())
    return LanguageRules(
        TITLES.union(*(rules.titles for rules in chosen)),
        frozenset().union(*(rules.numbered for rules in chosen)),
        frozenset().union(*(rules.times for rules in chosen)),
        frozenset().union(*(rules.time_words for rules in chosen)),
        COMPANIES.union(*(rules.abbreviations for rules in chosen)),
        frozenset().union(*(rules.starters for rules in chosen)),
        known is not None and known.ordinals,
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TITLES = _words(
    "mr mrs ms mx messrs dr drs prof st ste sgt gen col lt capt cmdr maj adm gov sen sens rep reps rev hon vs"
)
COMPANIES = _words("inc ltd corp co bros jr sr ph.d")
RULES = {
    "en": LanguageRules(
        titles=_words("cpl supt pres mt ft e.g i.e cf viz"),
        numbered=_words(
            "no nos vol vols fig figs ch sec art eq pp p pt pts ref approx est ca jan feb mar apr jun jul aug sep sept "
            "oct nov dec"
        ),
        times=_words("a.m p.m"),
        time_words=_words(
            "monday tuesday wednesday thursday friday saturday sunday et est edt ct cst cdt pt pst pdt gmt utc bst cet "
            "eastern central mountain pacific moscow"
        ),
        abbreviations=_words("ave blvd rd dept univ assn esq al etc plc llc intl natl ed eds trans v"),
        starters=_words(
            "the this that these those there then they their he she it its we you i my his her our your who what when "
            "where why how which if in on at as by for from with to of after before during since until while although "
            "because but and or so yet however meanwhile moreover also still now here not no yes do does did is are "
            "was were can could will would should may might has have had let please some many most all both each "
            "every another one two three maybe nobody everyone an other"
        ),
    ),
    "pt": LanguageRules(
        titles=_words(
            "sr sra srs sras srta dra dras profa profª eng engª arq adv sto sta d exmo exma ilmo ilma pe cel ten pres "
            "dep av trav rod p.ex ex cf"
        ),
        numbered=_words(
            "n no nº nn núm nro pág págs p pp vol vols fig figs cap caps art arts inc ed séc tel jan fev mar abr mai "
            "jun jul ago set out nov dez r al"
        ),
        abbreviations=_words("ltda cia s.a a.c d.c etc eds org orgs obs aprox máx mín"),
        starters=_words(
            "o a os as um uma uns umas ele ela eles elas eu tu você vocês nós isto isso aquilo este esta estes estas "
            "esse essa esses essas aquele aquela aqueles aquelas meu minha seu sua nosso nossa que quem quando onde "
            "como por porque qual quais quanto se em no na nos nas ao à aos às de do da dos das com para sem sob sobre "
            "após antes depois durante desde até enquanto embora mas e ou também ainda já agora aqui ali lá não sim "
            "nunca nem há é são foi foram era está estão pode tem muitos muitas alguns algumas todos todas cada outro "
            "outra dois duas três ninguém pelo pela estou quero tenho posso"
        ),
    ),
    "ru": LanguageRules(
        titles=_words(
            "г-н г-жа гр проф акад доц д-р инж им ул просп пер пл наб бул обл респ св дж т.е т.к т.н и.о напр ср "
            "ген полк кап лейт"
        ),
        numbered=_words("рис табл гл ст п пп ч разд вып стр с т тт кв корп д тел"),
        abbreviations=_words("т.д т.п т.о др пр ок см"),
        starters=_words(
            "он она оно они я ты мы вы это этот эта эти тот та то те мой моя моё мои твой наш ваш его её их кто что "
            "когда где почему как какой какая какие сколько если в во на с со к ко у о об от до из за под над при по "
            "для без после перед пока хотя потому но и а или также ещё уже теперь сейчас здесь там тут не нет да ни "
            "есть был была было были будет может все всё каждый другой один два три однако поэтому кроме среди так "
            "ничего никто"
        ),
    ),
    "de": LanguageRules(
        titles=_words("hr hrn fr frl dipl ing med phil jur rer nat skt z.b z d.h u.a v vgl bzw ca evtl ggf inkl sog"),
        numbered=_words("nr nrn bd bde s abb kap art abs ziff tel jan feb mär apr jun jul aug sep sept okt nov dez"),
        abbreviations=_words(
            "usw etc str u.ä o.ä i.d.r mio mrd tsd jh jhd chr v.chr n.chr geb gest gmbh e.v aufl hrsg"
        ),
        starters=_words(
            "der die das dies diese dieser dieses den dem des ein eine einen einem einer er sie es wir ihr ich du man "
            "mein meine sein seine ihre unser unsere wer was wann wo warum wie welche welcher wenn ob in im an am auf "
            "aus bei beim mit nach von vom vor zu zum zur für gegen ohne um über unter während seit bis nachdem bevor "
            "obwohl weil aber und oder doch sondern auch noch schon nun jetzt hier dort da dann so nicht nein ja kein "
            "keine ist sind war waren wird werden hat haben kann können muss alle viele einige jeder jede zwei drei "
            "sowohl dabei dazu damit deshalb trotzdem"
        ),
        ordinals=True,
    ),
}
