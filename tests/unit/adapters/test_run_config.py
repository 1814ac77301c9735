"""The TOML of `wukongs run`: what it gives, and what is refused, with file, key, expected and found."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from wukongs.adapters.feeds.clock import ClockOptions
from wukongs.adapters.feeds.feed import WAITS
from wukongs.adapters.mapping.mapping import TimeMap
from wukongs.adapters.mapping.times import TimeFormat
from wukongs.adapters.run_config import (
    LiveSource,
    LsbenchSource,
    PipelineConfig,
    QueryConfig,
    RdfSource,
    RecordSource,
    RunConfig,
    StoredConfig,
    TimestampedSource,
    load_run_config,
)
from wukongs.errors import QuerySyntaxError, SettingsError

WHOLE = """
[engine]
history_ms = 5000
[pipeline]
speed = 86_400
engine = "local"
rows_per_epoch = 5
align_ms = 1000
start_ms = -5
stop_ms = 100
parallelism = 1
dead_letters = "sub/bad.jsonl"
bad_records_max = 0.25
[[stored]]
file = "${HERE}/a.nt"
graph = "http://ex/g"
format = "nt"
[[stream]]
iri = "http://ex/s"
batch_ms = 100
timing = ["http://ex/ga"]
into = "http://ex/g"
history_ms = 0
slice_bytes_max = 4096
index = "matching"
idle_timeout_ms = 30_000
source = { kind = "timestamped", path = ["a.nt", "sub/b.nt"], timestamps = "prefix" }
[[stream]]
iri = "http://ex/t"
timing = true
source = { kind = "lsbench", path = "a.nt", times = "sub/${MISSING:-b.nt}" }
[[stream]]
iri = "http://ex/u"
[stream.source]
kind = "csv"
path = "a.nt"
mapping = "sub/m.toml"
with = { sensor = "http://ex/sensor" }
time = { column = "t", format = "epoch_s" }
[[query]]
name = "Q"
file = "sub/q.rq"
[[ask]]
name = "A"
text = "ASK {}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("a.nt", "sub/b.nt"):
        (tmp_path / name).write_text("")
    (tmp_path / "sub" / "q.rq").write_text(QUERY, "utf-8-sig")
    (tmp_path / "sub" / "m.toml").write_text("[[triple]]\nsubject='{sensor}'\npredicate='http://p'\nvalue='{v}'\n")
    return tmp_path


QUERY = "REGISTER QUERY Q AS SELECT ?ö FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?ö ?p ?o }"


def _load(folder: Path, text: str) -> object:
    (folder / "run.toml").write_text(text, "utf-8")
    return load_run_config(folder / "run.toml", {"HERE": str(folder)})


def test_everything_is_read(folder: Path) -> None:
    (folder / "run.toml").write_text(WHOLE, "utf-8")
    config = load_run_config(folder / "run.toml", {"HERE": str(folder)})
    a, b = str(folder / "a.nt"), str(folder / "sub" / "b.nt")
    assert config.settings.history_ms == 5000
    assert config.settings.batch_ms == 100
    assert config.pipeline == PipelineConfig(
        engine="local",
        speed=86_400.0,
        rows_per_epoch=5,
        align_ms=1000,
        start_ms=-5,
        stop_ms=100,
        parallelism=1,
        dead_letters=str(folder / "sub" / "bad.jsonl"),
        bad_records_max=0.25,
    )
    assert config.stored == (StoredConfig(file=a, graph="http://ex/g", format="nt"),)
    first, second, third = config.streams
    assert (first.iri, first.batch_ms, first.into, first.history_ms) == ("http://ex/s", 100, "http://ex/g", 0)
    assert (first.slice_bytes_max, first.index, first.idle_timeout_ms) == (4096, "matching", 30_000)
    assert first.timing == ("http://ex/ga",)
    assert first.sources == (TimestampedSource(paths=(a, b), timestamps="prefix"),)
    assert second.timing is True
    assert (second.slice_bytes_max, second.index, second.idle_timeout_ms) == (None, "all", None)
    assert second.batch_ms is None
    assert second.sources == (LsbenchSource(path=a, times=b),)
    assert third.timing == ()
    (records,) = third.sources
    assert isinstance(records, RecordSource)
    assert (records.kind, records.paths) == ("csv", (a,))
    assert records.constants == (("sensor", "http://ex/sensor"),)
    assert records.mapping.time == TimeMap("t", TimeFormat("epoch_s"))
    assert records.mapping.columns == ("sensor", "v", "t")
    assert config.queries == (QueryConfig(name="Q", text=QUERY, source=str(folder / "sub" / "q.rq")),)
    (ask,) = config.asks
    assert (ask.name, ask.text.strip(), ask.source) == ("A", "ASK {}", str(folder / "run.toml"))


LIVE = """
[[stream]]
iri = "http://ex/s"
idle_timeout_ms = 60_000
idle_advance = "wall"
%s
source = { kind = "stdin", format = "timestamped", lateness_ms = 500 }
"""


def test_signs_of_a_stream_may_go_by_event_time(folder: Path) -> None:
    text = (LIVE % "%s").replace('idle_advance = "wall"', "")
    assert load_text(folder, text % 'retractions = "event_time"').streams[0].retractions == "event_time"
    assert load_text(folder, text % "").streams[0].retractions is None
    with pytest.raises(SettingsError, match=r"retractions: expected .*'event_time', found 'arrival'"):
        load_text(folder, text % 'retractions = "arrival"')


def test_a_stream_that_follows_the_wall_clock_says_so_to_its_source(folder: Path) -> None:
    [stream] = load_text(folder, LIVE % "").streams
    assert (stream.idle_timeout_ms, stream.idle_advance) == (60_000, "wall")
    assert isinstance(stream.sources[0], LiveSource)
    assert stream.sources[0].waits == replace(WAITS, lateness_ms=500, idle_timeout_ms=60_000, idle_advance="wall")
    [plain] = load_text(folder, (LIVE % "").replace('idle_advance = "wall"', "")).streams
    assert isinstance(plain.sources[0], LiveSource)
    assert (plain.idle_advance, plain.sources[0].waits) == (None, replace(WAITS, lateness_ms=500))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"wall"', '"event"', "stream[0].idle_advance: expected one of"),
        ("idle_timeout_ms = 60_000", "", "line 5, stream[0].idle_advance: expected an idle_timeout_ms beside it"),
        (
            'kind = "stdin", format = "timestamped", lateness_ms = 500',
            'kind = "timestamped", path = "a.nt"',
            "line 5, stream[0].idle_advance: expected none beside files: they are recordings",
        ),
        (
            'kind = "stdin", format',
            'kind = "folder", path = "sub", follow = false, format',
            "stream[0].idle_advance: expected none beside follow = false",
        ),
        (
            'kind = "stdin", format = "timestamped", lateness_ms = 500',
            'kind = "clock"',
            'stream[0].idle_advance: expected none beside kind = "clock", which is never silent',
        ),
    ],
)
def test_an_idle_advance_that_makes_no_sense_is_refused(folder: Path, old: str, new: str, message: str) -> None:
    assert old in LIVE
    with pytest.raises(SettingsError, match=re.escape(message)):
        load_text(folder, (LIVE % "").replace(old, new))


@pytest.mark.parametrize("key", ["speed = 60.0", "rate = 100"])
def test_a_stream_that_follows_the_wall_clock_has_no_pace_of_its_own(folder: Path, key: str) -> None:
    with pytest.raises(SettingsError, match=r"pipeline\.(speed|rate): expected none beside a source that goes on"):
        load_text(folder, LIVE % "" + f"[pipeline]\n{key}\n")


def test_a_clock_is_a_source(folder: Path) -> None:
    text = '[[stream]]\niri = "http://ex/s"\n[stream.source]\nkind = "clock"\n'
    [stream] = load_text(folder, text).streams
    assert isinstance(stream.sources[0], LiveSource)
    assert stream.sources[0].options == ClockOptions(1000, None, "<urn:x-wukongs:tick>")
    more = 'every_ms = 250\nsubject = "http://ex/clock"\npredicate = "<http://ex/now>"\nname = "four"\n'
    [stream] = load_text(folder, text + more).streams
    assert isinstance(stream.sources[0], LiveSource)
    assert stream.sources[0].options == ClockOptions(250, "<http://ex/clock>", "<http://ex/now>")
    assert stream.sources[0].name == "four"


def load_text(folder: Path, text: str) -> RunConfig:
    (folder / "run.toml").write_text(text, "utf-8")
    return load_run_config(folder / "run.toml", {})


def test_an_empty_file_has_defaults(folder: Path) -> None:
    (folder / "run.toml").write_text("")
    config = load_run_config(folder / "run.toml", {})
    assert config.pipeline == PipelineConfig(dead_letters=str(folder / "run.dead.jsonl"))
    assert config.streams == ()


_STREAM = '[[stream]]\niri = "http://ex/s"\nsource = { kind = "timestamped", path = "a.nt" }\n'


def test_iris_may_stand_in_angle_brackets(tmp_path: Path) -> None:
    """A stream is then found by its queries, and a timing predicate by the workers that mark its tuples."""
    (tmp_path / "a.nt").write_text("")
    (tmp_path / "run.toml").write_text(
        '[[stream]]\niri = "<http://ex/s>"\ninto = "<http://ex/g>"\ntiming = ["<http://ex/ga>"]\n'
        'source = { kind = "rdf", path = "a.nt", time = { predicate = "<http://ex/at>" } }\n[[query]]\nname = "q"\n'
        'text = "REGISTER QUERY q AS SELECT * FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] { ?s ?p ?o }"\n'
    )
    (stream,) = load_run_config(tmp_path / "run.toml").streams
    assert (stream.iri, stream.into, stream.timing) == ("http://ex/s", "http://ex/g", ("http://ex/ga",))
    (source,) = stream.sources
    assert isinstance(source, RdfSource)
    assert source.predicate == "http://ex/at"


def test_several_sources_of_one_stream_stand_under_headings_of_their_own(tmp_path: Path) -> None:
    """Files of different shapes, each with its own mapping or times."""
    (tmp_path / "a.nt").write_text("")
    (tmp_path / "in").mkdir()
    (tmp_path / "run.toml").write_text(
        '[[stream]]\niri = "http://ex/s"\n[[stream.source]]\nkind = "timestamped"\npath = "a.nt"\n'
        '[[stream.source]]\nkind = "folder"\npath = "in"\nformat = "timestamped"\nidle_timeout_ms = 7\n'
    )
    (stream,) = load_run_config(tmp_path / "run.toml").streams
    file, folder = stream.sources
    assert file == TimestampedSource(paths=(str(tmp_path / "a.nt"),))
    assert isinstance(folder, LiveSource)
    assert stream.live_sources == (folder,)
    assert folder.waits.idle_timeout_ms == 7


def test_idle_ms_is_the_older_name_of_idle_timeout_ms(tmp_path: Path) -> None:
    text = '[[stream]]\niri = "http://ex/s"\nsource = { kind = "folder", path = "in", format = "timestamped", %s }\n'
    path = tmp_path / "run.toml"
    (tmp_path / "in").mkdir()
    path.write_text(text % "idle_ms = 7")
    (source,) = load_run_config(path).streams[0].live_sources
    assert source.waits.idle_timeout_ms == 7
    path.write_text(text % "idle_ms = 7, idle_timeout_ms = 8")
    with pytest.raises(
        SettingsError, match=r"source\.idle_timeout_ms: expected either idle_timeout_ms or idle_ms, its o"
    ):
        load_run_config(path)


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        (
            "[pipelin]\nspeed = 1",
            "pipelin",
            "one of the keys engine, stored, stream, .*found the unknown key 'pipelin'",
        ),
        ("[engine]\nspeed = 1", "engine.speed", "one of the keys batch_ms, .*found the unknown key 'speed'"),
        ("[engine]\nbatch_ms = 1.5", "engine.batch_ms", r"an integer >= 0, found 1.5 \(float\)"),
        ("[pipeline]\nspeed = -1", "pipeline.speed", r"a number >= 0, found -1 \(int\)"),
        ("[pipeline]\nspeed = inf", "pipeline.speed", "a number >= 0"),
        ('[pipeline]\nengine = "flink"', "pipeline.engine", "one of 'spark', 'local', found 'flink'"),
        ("[pipeline]\nrows_per_epoch = 0", "pipeline.rows_per_epoch", "an integer >= 1, found 0"),
        ("[pipeline]\nbad_records_max = 10", "pipeline.bad_records_max", "a number from 0 to 1, found 10"),
        ('[pipeline]\ndead_letters = "gone/x.jsonl"', "pipeline.dead_letters", "a file in a folder that is there"),
        ("[pipeline]\nparallelism = true", "pipeline.parallelism", r"an integer >= 1, found True \(bool\)"),
        ("pipeline = 3", "pipeline", r"a table, found 3 \(int\)"),
        ("stream = 3", "stream", r"tables, each under \[\[stream\]\], found 3"),
        ("[[stream]]\nbatch_ms = 5", r"stream\[0\].iri", "an IRI, found nothing"),
        ("[[stream]]\niri = 'a b'\nsource = {}", r"stream\[0\].iri", "an IRI, without spaces.*, found 'a b'"),
        ("[[stored]]\nfile = 'a.nt'\ngraph = 'a b'", r"stored\[0\].graph", "an IRI, without spaces.*, found 'a b'"),
        (_STREAM + "into = '\"'", r"stream\[0\].into", "an IRI, without spaces"),
        (_STREAM + "batch_ms = 0", r"stream\[0\].batch_ms", "an integer >= 1, found 0"),
        (_STREAM + "timing = 'all'", r"stream\[0\].timing", "true or a list of predicate IRIs, found 'all'"),
        (_STREAM + "timing = [1]", r"stream\[0\].timing", "true or a list of predicate IRIs"),
        (_STREAM + "colour = 1", r"stream\[0\].colour", "one of the keys iri, source, .*the unknown key 'colour'"),
        (
            "[[stream]]\niri='x'\nsource={kind='fax'}",
            r"stream\[0\].source.kind",
            "one of 'lsbench', 'timestamped', 'rdf', 'csv', 'tsv', 'jsonl', 'json', 'parquet', 'folder',",
        ),
        (
            "[[stream]]\niri='x'\nsource={kind='timestamped', path='a.nt', times='a.nt'}",
            r"stream\[0\].source.times",
            "one of the keys kind, path, timestamps, sort, found the unknown key 'times'",
        ),
        (
            "[[stream]]\niri='x'\nsource={kind='timestamped', path='no.nt'}",
            r"source.path",
            "a file, found .*no.nt, which is not there",
        ),
        (
            "[[stream]]\niri='x'\nsource={kind='timestamped', path='../'}",
            r"source.path",
            "a file, found .*, which is none",
        ),
        ("[[stream]]\niri='x'\nsource={kind='timestamped', path=[]}", r"source.path", "a path or a list of paths"),
        (
            "[[stream]]\niri='x'\nsource={kind='lsbench', path='a.nt'}",
            r"source.times",
            "the path of a file, found nothing",
        ),
        (
            "[[stored]]\nfile = '${NOWHERE}/a.nt'",
            r"stored\[0\].file",
            "the environment variable NOWHERE to be set, found it unset",
        ),
        ("[[query]]\nname = 'Q'", r"query\[0\].file", "either file or text, found neither"),
        ("[[query]]\nname = 'Q'\ntext='x'\nfile='a.nt'", r"query\[0\].file", "either file or text, found both"),
        ("[[ask]]\nname = ''", r"ask\[0\].name", "a text, found ''"),
    ],
)
def test_what_will_not_do_is_refused(folder: Path, text: str, place: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=rf"run\.toml, .*{place}: expected {expected}"):
        _load(folder, text)


def test_names_are_unique(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"\[\[stream\]\]: expected each name once, found 'http://ex/s' twice"):
        _load(folder, _STREAM * 2)
    with pytest.raises(SettingsError, match=r"\[\[query\]\]: expected each name once, found 'Q' twice"):
        _load(folder, "[[query]]\nname='Q'\ntext='x'\n" * 2)


def test_engine_options_keep_their_bounds(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"run\.toml, \[engine\]: hash_bits = 63: expected an integer from 1 to 62"):
        _load(folder, "[engine]\nhash_bits = 63")


def test_a_file_that_is_no_toml_is_refused(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"run\.toml, line 1, .*: expected TOML, found an error: "):
        _load(folder, "speed = = 3")
    (folder / "run.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(
        SettingsError, match=r"run\.toml, line 1, column 6: expected TOML in UTF-8, found the byte 0xFF"
    ):
        load_run_config(folder / "run.toml")
    with pytest.raises(SettingsError, match=re.escape(f"{folder / 'no.toml'}: cannot be read (No such file")):
        load_run_config(folder / "no.toml")


def test_a_query_that_is_no_utf8_is_refused(folder: Path) -> None:
    (folder / "sub" / "q.rq").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"query\[0\]\.file: expected a query in UTF-8"):
        _load(folder, "[[query]]\nname='Q'\nfile='sub/q.rq'")


def test_a_query_that_does_not_parse_is_refused_by_its_place(folder: Path) -> None:
    (folder / "sub" / "q.rq").write_text("REGISTER QUERY Q AS\nSELEC ?s")
    with pytest.raises(QuerySyntaxError, match=r"sub/q\.rq, line 2, column 1: expected "):
        _load(folder, "[[query]]\nname='Q'\nfile='sub/q.rq'")


def test_a_query_in_the_toml_is_refused_by_its_place_there(folder: Path) -> None:
    texts = ("text='SELEC ?s'", 'text="""\nSELEC ?s"""', 'text = """\r\nASK {\r\n ?s ?p }\r\n"""')
    for text, place in zip(texts, ("line 3, column 7", "line 4, column 1", "line 5, column 8"), strict=True):
        with pytest.raises(QuerySyntaxError, match=rf"run\.toml, {place}: expected ") as caught:
            _load(folder, f"[[ask]]\nname='A'\n{text}\n")
        assert caught.value.excerpt.startswith(f"{caught.value.line} | ")


def test_a_query_in_the_toml_that_is_escaped_is_refused_by_its_name(folder: Path) -> None:
    with pytest.raises(QuerySyntaxError, match=r"run\.toml, text of query 'A', line 2, column 1: expected "):
        _load(folder, "[[ask]]\nname='A'\ntext=\"# c\\nSELEC ?s\"")


def test_an_unknown_key_has_its_line_and_a_near_one(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"run\.toml, line 4, stream\[0\]\.batchms: .*; did you mean batch_ms\?$"):
        _load(folder, _STREAM + "batchms = 5")
    with pytest.raises(SettingsError, match=r"run\.toml, line 1, streem: .*; did you mean stream\?$"):
        _load(folder, "[[streem]]")


def test_a_byte_order_mark_is_no_part_of_the_toml(folder: Path) -> None:
    _load(folder, "\ufeff[pipeline]\nspeed = 1")


def test_a_file_that_the_environment_places_is_named_with_its_variable(folder: Path) -> None:
    message = r"expected a file, found .*nowhere/a\.nt, which is not there; DATA in the environment says where to look"
    with pytest.raises(SettingsError, match=message):
        _load(folder, "[[stored]]\nfile = '${DATA:-nowhere}/a.nt'")


def test_a_query_over_a_stream_of_no_file_is_refused(folder: Path) -> None:
    message = r"\[\[query\]\] Q: expected streams of this file, found FROM STREAM <http://ex/s>: .* Declared: none"
    with pytest.raises(SettingsError, match=message):
        _load(folder, f"[[query]]\nname='Q'\ntext='{QUERY}'")


MADE = """
[[query]]
name = 'M'
text = 'REGISTER %s AS CONSTRUCT { ?x ?p ?o } FROM STREAM <http://ex/s> [RANGE 1s STEP 1s] WHERE { ?x ?p ?o }'
"""


@pytest.mark.parametrize("made", ["STREAM <http://ex/m>", "ISTREAM <http://ex/m>"])
def test_a_query_may_read_what_a_query_above_it_makes(folder: Path, made: str) -> None:
    reader = f"[[query]]\nname='Q'\ntext='{QUERY.replace('http://ex/s', 'http://ex/m')}'\n"
    _load(folder, _STREAM + MADE % made + reader)
    message = r"\[\[query\]\] Q: expected streams of this file, found FROM STREAM <http://ex/m>"
    with pytest.raises(SettingsError, match=message):
        _load(folder, _STREAM + reader + MADE % made)
    with pytest.raises(SettingsError, match=message):
        _load(folder, _STREAM + MADE % "QUERY <http://ex/m>" + reader)


def test_a_query_under_the_wrong_heading_is_refused(folder: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"\[\[query\]\] Q: expected REGISTER QUERY or a window, .*: \[\[ask\]\] is for"
    ):
        _load(folder, "[[query]]\nname='Q'\ntext='ASK {}'")
    with pytest.raises(SettingsError, match=r"\[\[ask\]\] A: expected a one-shot query, .*: \[\[query\]\] is for"):
        _load(folder, f"[[ask]]\nname='A'\ntext='{QUERY}'")


def test_what_the_firings_of_a_query_report(folder: Path) -> None:
    stream = "[[stream]]\niri='http://ex/s'\nsource={kind='timestamped', path='a.nt'}\n"
    (folder / "run.toml").write_text(f"{stream}[[query]]\nname='Q'\noutput='istream'\ntext='{QUERY}'", "utf-8")
    (query,) = load_run_config(folder / "run.toml").queries
    assert query.output == "istream"
    with pytest.raises(SettingsError, match=r"output: expected one of .*'rstream', 'istream', 'dstream', found 'all'"):
        _load(folder, f"[[query]]\nname='Q'\noutput='all'\ntext='{QUERY}'")
    with pytest.raises(SettingsError, match="output"):
        _load(folder, "[[ask]]\nname='A'\noutput='istream'\ntext='ASK {}'")
