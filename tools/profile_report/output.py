"""profile.txt, profile.json and profile.html."""

import html
import json

from . import advice
from .layers import LAYERS

SCHEMA, VERSION = "hakmem-profile", 1
COLOURS = {"program": "#b8b8b8", "libc": "#8c8c8c", "entry": "#9ecae1", "front": "#3182bd", "lookup": "#08519c",
           "refill": "#31a354", "warm": "#74c476", "shared": "#006d2c", "remote": "#c7a900", "large": "#756bb1",
           "heap": "#bcbddc", "os": "#fdae6b", "faults": "#de2d26", "calls": "#fc9272", "kernel": "#a63603",
           "other": "#000000"}


def columns(runs):
    """[(run, heading, Profile)] of everything measured, side by side."""
    return [(run, heading, p) for run in runs
            for heading, p in (("time", run.time), ("instr", run.instructions)) if p is not None]


def table(runs):
    shown = columns(runs)
    lines = [f"{'':<52}" + "".join(f"{run.name[:16]:>17}" for run, _, _ in shown),
             f"{'layer':<52}" + "".join(f"{heading:>17}" for _, heading, _ in shown)]
    for name, (what, _) in LAYERS.items():
        shares = [p.shares()[name] for _, _, p in shown]
        if any(shares):
            lines.append(f"{what:<52}" + "".join(f"{advice.percent(s):>17}" for s in shares))
    return lines


def usage_line(run):
    u = run.usage
    seconds = max(1e-9, u["user_s"] + u["sys_s"])
    return (f"{run.name}: {u['wall_s']:.2f} s, user {u['user_s']:.2f} s, sys {u['sys_s']:.2f} s "
            f"({advice.percent(u['sys_s'] / seconds)}), {u['minor_faults']:,} minor faults, "
            f"peak RSS {u['maxrss_kib']:,} KiB")


def text(runs, notes, top=12):
    lines = ["Where the time goes, by layer", ""]
    lines += [f"  {run.name}: {' '.join(run.shown)}" for run in runs] + [""]
    lines += [usage_line(run) for run in runs] + [""]
    sources = sorted({f"{heading}: {p.source}" for _, heading, p in columns(runs)})
    lines += [*(f"{s}" for s in sources), *(f"note: {n}" for n in notes), ""]
    lines += table(runs)
    for run, heading, p in columns(runs):
        lines += ["", f"{run.name}, functions by {heading} ({p.total:,} {p.unit})"]
        lines += [f"  {advice.percent(n / max(1, p.total)):>7}  {layer:<8} {function}"
                  for (layer, function), n in p.functions.most_common(top)]
        if p.lines:
            lines.append(f"{run.name}, lines of the library by {heading}")
            lines += [f"  {advice.percent(n / max(1, p.total)):>7}  src/{line}"
                      for line, n in p.lines.most_common(top)]
    if differences := advice.differences(runs):
        lines += ["", "What differs, in shares of all but the program:", *(f"  - {line}" for line in differences)]
    for run in runs:
        lines += ["", f"What to look at next, {run.name}:"]
        lines += [f"  - {line}" for line in advice.of_workload(run)]
    return "\n".join(lines) + "\n"


def document(runs, notes):
    return {"schema": SCHEMA, "version": VERSION, "notes": notes,
            "layers": [{"name": name, "what": what, "expected_without_program": expected}
                       for name, (what, expected) in LAYERS.items()],
            "workloads": [{"name": run.name, "command": run.shown, "usage": run.usage,
                           "time": run.time.as_json() if run.time else None,
                           "instructions": run.instructions.as_json() if run.instructions else None,
                           "next": advice.of_workload(run)} for run in runs]}


def bars(runs):
    """Inline SVG: one stacked bar per column of the table."""
    width, height, left, gap = 900, 30, 190, 14
    shown = columns(runs)
    parts = [f'<svg viewBox="0 0 {left + width} {len(shown) * (height + gap)}" role="img" '
             'aria-label="share of each layer">']
    for row, (run, heading, p) in enumerate(shown):
        x, y = float(left), row * (height + gap)
        parts.append(f'<text x="0" y="{y + 20}">{html.escape(run.name)}, {heading}</text>')
        for name, share in p.shares().items():
            w = share * width
            if w <= 0:
                continue
            label = f"{LAYERS[name][0]}: {advice.percent(share)}"
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{height}" '
                         f'fill="{COLOURS[name]}"><title>{html.escape(label)}</title></rect>')
            if w > 60:
                parts.append(f'<text x="{x + w / 2:.1f}" y="{y + 20}" class="in">{name} {100 * share:.0f}</text>')
            x += w
    return "".join(parts) + "</svg>"


def page(runs, notes):
    shown = columns(runs)
    head = "".join(f"<th>{html.escape(run.name)}<br>{heading}</th>" for run, heading, _ in shown)
    rows = ""
    for name, (what, _) in LAYERS.items():
        shares = [p.shares()[name] for _, _, p in shown]
        if any(shares):
            cells = "".join(f"<td>{advice.percent(s)}</td>" for s in shares)
            rows += (f'<tr><td class="what"><i style="background:{COLOURS[name]}"></i>{html.escape(what)}</td>'
                     f"{cells}</tr>")
    todo = "".join(f"<h3>{html.escape(run.name)}</h3><ul>" + "".join(
        f"<li>{html.escape(line)}</li>" for line in advice.of_workload(run)) + "</ul>" for run in runs)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>HAKMEM: where the time goes</title><style>
body {{ font: 15px/1.45 sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222; }}
svg {{ width: 100%; }} svg text {{ font-size: 13px; }} svg text.in {{ fill: #fff; text-anchor: middle; }}
td, th {{ padding: 2px 12px; text-align: right; }} td.what {{ text-align: left; }}
i {{ display: inline-block; width: 11px; height: 11px; margin-right: 7px; }} pre {{ overflow-x: auto; }}
</style></head><body>
<h1>Where the time goes, by layer</h1>
{bars(runs)}
<table><tr><th></th>{head}</tr>{rows}</table>
<h2>What to look at next</h2>{todo}
<h2>Report</h2><pre>{html.escape(text(runs, notes, top=20))}</pre>
</body></html>
"""


def write(folder, runs, notes):
    for name, content in (("profile.txt", text(runs, notes)), ("profile.html", page(runs, notes)),
                          ("profile.json", json.dumps(document(runs, notes), indent=1) + "\n")):
        (folder / name).write_text(content, encoding="utf-8")
