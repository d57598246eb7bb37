"""A report as Markdown with plots beside it, and as one HTML file."""

import base64
import html
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.jobs.report_tables import Sums, Table, merged, quantile

MOST_ROWS: Final = 500
"""Of a table; the Parquet files have all rows."""
STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em}"
    "table{border-collapse:collapse;margin:.5em 0 2em}th,td{padding:.25em .8em;border-bottom:1px solid #ddd;"
    "text-align:left}.n{text-align:right;font-variant-numeric:tabular-nums}img{max-width:100%}"
)


class Plot(NamedTuple):
    title: str
    file: str


def write_plots(sums: Sums, directory: Path) -> list[Plot]:
    """Draw the plots that have data. Returns: those drawn. Raises: PipelineError: matplotlib is missing."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - slow to import, and only needed here

        mpl.use("Agg")
        from matplotlib import pyplot as plt  # noqa: PLC0415
    except ImportError:
        raise PipelineError("report needs matplotlib: pip install 'sharequeue[spark]'") from None
    directory.mkdir(parents=True, exist_ok=True)
    plots = []

    def save(figure: Any, title: str, file: str) -> None:
        figure.tight_layout()
        figure.savefig(directory / file, dpi=110)
        plt.close(figure)
        plots.append(Plot(title, file))

    hours = sorted({*(hour for hour, _ in sums.produced_by_hour), *(hour for hour, *_ in sums.counts_by_hour)})
    moments = [datetime.fromtimestamp(hour / 1000, UTC) for hour in hours]
    axes: Any
    if hours:
        figure, axes = plt.subplots(figsize=(9, 3.6))
        axes.plot(moments, _by_hour(hours, _hourly(sums.produced_by_hour)), "o-", label="produced")
        for name in ("delivered", "accepted", "released", "expired"):
            series = merged({hour: counts.get(name, 0)} for (hour, *_), counts in sums.counts_by_hour.items())
            axes.plot(moments, _by_hour(hours, series), "o-", label=name)
        axes.set_ylabel("records per hour")
        axes.legend()
        figure.autofmt_xdate()
        save(figure, "Records per hour", "records.png")
    timed = [hour for hour in hours if any(place[0] == hour and times for place, times in sums.times_by_hour.items())]
    if timed:
        figure, axes = plt.subplots(figsize=(9, 3.6))
        for share in (0.5, 0.99):
            at = [
                (quantile(merged(t for place, t in sums.times_by_hour.items() if place[0] == hour), share) or 0) / 1000
                for hour in timed
            ]
            axes.plot(
                [datetime.fromtimestamp(hour / 1000, UTC) for hour in timed], at, "o-", label=f"p{share:.0%}"[:-1]
            )
        axes.set_yscale("log")
        axes.set_ylabel("seconds")
        axes.legend()
        figure.autofmt_xdate()
        save(figure, "Time from produce to accept", "times.png")
    for title, file, histogram, label in (
        ("Deliveries by delivery count", "deliveries.png", merged(sums.deliveries.values()), "delivery count"),
        ("Dead letters by cause", "dead-letters.png", merged(sums.dead_letters.values()), "cause"),
    ):
        if histogram:
            figure, axes = plt.subplots(figsize=(6, 3.2))
            axes.bar([str(place) for place in sorted(histogram)], [histogram[place] for place in sorted(histogram)])
            axes.set_xlabel(label)
            axes.set_ylabel("records")
            save(figure, title, file)
    return plots


def _hourly(by_hour: Mapping[tuple[int, str], int]) -> dict[int, int]:
    return merged({hour: records} for (hour, _), records in by_hour.items())


def _by_hour(hours: Sequence[int], series: Mapping[int, int]) -> list[int]:
    return [series.get(hour, 0) for hour in hours]


def markdown(title: str, tables: Sequence[Table], plots: Sequence[Plot], plot_directory: str) -> str:
    """The report as Markdown; the plots are files beside it."""
    parts = [f"# {title}"]
    parts += [f"![{plot.title}]({plot_directory}/{plot.file})" for plot in plots]
    for table in tables:
        parts.append(f"## {table.title}")
        if not table.rows:
            parts.append("Nothing.")
            continue
        lines = [_line(column.removeprefix("#") for column in table.columns)]
        lines.append(_line("---:" if column.startswith("#") else "---" for column in table.columns))
        lines += [_line(_shown(cell).replace("|", "\\|") for cell in row) for row in table.rows[:MOST_ROWS]]
        parts.append("\n".join(lines))
        parts += _more(table)
    return "\n\n".join(parts) + "\n"


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _more(table: Table) -> list[str]:
    left = len(table.rows) - MOST_ROWS
    return [f"{left:,} more rows are in the Parquet files."] if left > 0 else []


def page(title: str, tables: Sequence[Table], plots: Sequence[Plot], directory: Path) -> str:
    """The report as one HTML file that contains the plots. `directory`: where the plots are."""
    parts = [f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"]
    parts.append(f"<h1>{html.escape(title)}</h1>")
    for plot in plots:
        image = base64.b64encode((directory / plot.file).read_bytes()).decode()
        parts.append(f'<img alt="{html.escape(plot.title)}" src="data:image/png;base64,{image}">')
    for table in tables:
        parts.append(f"<h2>{html.escape(table.title)}</h2>")
        if not table.rows:
            parts.append("<p>Nothing.</p>")
            continue
        numbers = [column.startswith("#") for column in table.columns]
        parts.append("<table>" + _row("th", [column.removeprefix("#") for column in table.columns], numbers))
        parts += [_row("td", row, numbers) for row in table.rows[:MOST_ROWS]]
        parts.append("</table>")
        parts += [f"<p>{line}</p>" for line in _more(table)]
    return "\n".join(parts) + "\n"


def _row(tag: str, cells: Sequence[object], numbers: Sequence[bool]) -> str:
    shown = (
        f"<{tag}{' class=n' if number else ''}>{html.escape(_shown(cell))}</{tag}>"
        for cell, number in zip(cells, numbers, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"
