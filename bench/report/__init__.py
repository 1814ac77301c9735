"""The report of a run: report.md, and report.html with its pictures inside."""

from __future__ import annotations

from pathlib import Path

from wukongs.bench.published import EXPERIMENTS, Source
from wukongs.bench.report import sections
from wukongs.bench.report.document import Document
from wukongs.bench.report.groups import groups_of
from wukongs.bench.report.pictures import HOW_TO_GET, can_draw, draw
from wukongs.bench.report.reading import read_results
from wukongs.bench.report.reckoning import reckon

PICTURES = "report-pictures"


def write_report(folder: Path) -> None:
    """Write report.md, its pictures, and report.html into the folder of a run. Raises ResultsError, OSError."""
    results = read_results(folder)
    document = Document(f"Benchmark report: {results.about.get('benchmark', 'no name')}")
    groups = groups_of(results)
    sections.warn(document, results)
    sections.describe(document, results)
    if groups and not can_draw():
        document.say(HOW_TO_GET)
    sources: dict[Source, int] = {}
    told = ""
    for group in groups:
        if group.experiment != told:
            told = group.experiment
            about = EXPERIMENTS.get(told)
            document.heading(f"{told}: {about}" if about else told)
        sections.tabulate(document, group, sources)
        for picture in draw(group) if can_draw() else ():
            document.picture(picture)
    reckon(document, results)
    sections.name_sources(document, sources)
    sections.list_aims(document, results, groups)
    sections.list_unmeasured(document, results, groups)
    sections.list_checks(document, results)
    _write(results.folder, document)


def _write(folder: Path, document: Document) -> None:
    """Write all files; pictures of an earlier report go."""
    pictures = folder / PICTURES
    for old in pictures.glob("*.svg") if pictures.is_dir() else ():
        old.unlink()
    for picture in document.pictures:
        pictures.mkdir(exist_ok=True)
        (pictures / f"{picture.name}.svg").write_text(picture.alone(), encoding="utf-8")
    (folder / "report.md").write_text(document.to_markdown(PICTURES), encoding="utf-8")
    (folder / "report.html").write_text(document.to_html(), encoding="utf-8")
