"""Decides which benchmark runs when: in rounds and, within a budget, more where figures are unsure.

Every benchmark gets LEAST_ROUNDS. In the time that is left, benchmarks get more rounds as
long as their interval is wide; settled ones are not run again. Within a round the order is
random, and a benchmark runs under all allocators or not at all. But for an allocator that
takes several times as long as the others, or is far behind the fastest after two rounds,
fewer rounds leave no doubt: within a budget it is left out of further rounds, which gives
those that may be first more of them.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from dataclasses import dataclass, field

from benchmark import Benchmark
from measure import AGAIN, Session, progress
from summary import LEAST_RUNS, common, exact_interval, paired, times

LEAST_ROUNDS = 4     # of every benchmark, if the budget allows
MOST_ROUNDS = 25     # with a budget
SETTLED = 0.02       # half width of an interval (as a logarithm) up to which it is narrow enough
OUTCLASSED = (8, 4)  # multiples of the benchmark's typical time: after one round, after two or more
BEHIND = 1.5         # multiple of the fastest allocator's time, each in its fastest run, after two undisturbed ones
RESERVE = 0.97       # share of the budget for running; the rest is for tables, page and charts


def unsure(session: Session, b: Benchmark, reference: str) -> float:
    """Half the width of a benchmark's ratio intervals: the median over the allocators."""
    base = times(session, b, reference)
    widths = []
    for a in session.allocators:
        mine, theirs = common(times(session, b, a.name), base)
        if a.name == reference or not mine or (b.name, a.name) in session.enough:
            continue
        ratios = paired(mine, theirs)
        low, high = exact_interval(ratios) if len(ratios) >= LEAST_RUNS else (0.0, math.inf)
        widths.append(math.log(high / low) / 2 if 0 < low and high < math.inf else math.inf)
    return statistics.median(widths) if widths else 0.0


@dataclass
class Schedule:
    session: Session
    rounds: int            # most rounds of each benchmark
    minutes: float         # 0: no limit
    quick: bool
    reference: str
    costs: dict[str, list[float]] = field(default_factory=dict)  # seconds, by benchmark
    done: dict[str, int] = field(default_factory=dict)           # rounds, by benchmark
    interrupted: bool = False

    def run(self) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + 60 * self.minutes * RESERVE if self.minutes else math.inf
        self.session.remaining = self.remaining
        self.session.again = 0 if self.minutes else AGAIN  # see pace
        try:
            self.all_rounds()
        except KeyboardInterrupt:
            self.interrupted = True
            print("\nInterrupted: what follows is of the rounds so far.", file=sys.stderr)
        # Benchmarks that never ran are left out of the tables.
        kept = [b for b in self.session.benchmarks if b.name in self.done]
        lost = [b.name for b in self.session.benchmarks if b not in kept]
        if lost and not self.interrupted:
            print(f"Left out, as there was no time left: {', '.join(lost)}", file=sys.stderr)
        self.session.benchmarks = kept

    def all_rounds(self) -> None:
        self.session.warm_up(self.quick)
        least = min(self.rounds, 1 if self.quick else LEAST_ROUNDS)
        for number in range(1, self.rounds + 1):
            if not self.round(self.choose(number, least), number):
                break
            self.say(number)
            self.pace(number, least)

    def cost(self, b: Benchmark) -> float:
        return statistics.fmean(self.costs.get(b.name, [0.0]))

    def choose(self, number: int, least: int) -> list[Benchmark]:
        """The benchmarks of this round: all, or those that need it most and fit the time left."""
        candidates = self.session.benchmarks
        if not self.minutes or number <= least:
            return candidates
        width = {b.name: unsure(self.session, b, self.reference) for b in candidates}
        wide = sorted((b for b in candidates if width[b.name] > SETTLED), key=lambda b: -width[b.name])
        left, chosen = self.deadline - time.monotonic(), []
        for b in wide:
            if self.cost(b) <= left:
                left -= self.cost(b)
                chosen.append(b)
        return chosen

    def round(self, chosen: list[Benchmark], number: int) -> int:
        """Runs them in random order except those that would end too late; returns how many ran.
        Quick runs keep the order of the suites, so that a slow machine runs at least the core."""
        ran = 0
        ordered = chosen if self.quick else self.session.order.sample(chosen, len(chosen))
        for place, b in enumerate(ordered, 1):
            start = time.monotonic()
            if start + self.cost(b) > self.deadline:
                continue
            count = self.done.get(b.name, 0) + 1
            if not self.session.once(b, count, f"round {number}: {place}/{len(chosen)}", self.deadline):
                continue
            self.costs.setdefault(b.name, []).append(time.monotonic() - start)
            self.done[b.name] = count
            if self.minutes:
                self.leave_out_slow(b, OUTCLASSED[min(count, len(OUTCLASSED)) - 1])
            ran += 1
        progress("")
        return ran

    def leave_out_slow(self, b: Benchmark, factor: float) -> None:
        """Leaves out slow allocators, on which most of a round would be spent."""
        took = {a.name: statistics.median(walls) for a in self.session.allocators
                if (walls := self.session.values(b.name, a.name, "wall_s"))}
        typical = statistics.median(took.values()) if took else 0.0
        slow = {(b.name, name) for name, wall in took.items() if wall > factor * typical} | self.behind(b)
        slow.discard((b.name, self.reference))
        if slow := slow - self.session.enough:
            self.session.enough |= slow
            del self.costs[b.name][:-1]
            self.costs[b.name][0] = max(0.0, self.costs[b.name][0] - sum(took[name] for _, name in slow))

    def behind(self, b: Benchmark) -> set[tuple[str, str]]:
        """The allocators that will not be the fastest in this benchmark."""
        least = {a.name: min(ran) for a in self.session.allocators
                 if len(ran := self.session.calm_values(b.name, a.name, b.metric)) > 1}
        return {(b.name, name) for name, t in least.items() if t > BEHIND * min(least.values())}

    def pace(self, number: int, least: int) -> None:
        """Within a budget, disturbed runs are repeated only if the least rounds do not suffer."""
        if not self.minutes:
            return
        needed = sum(map(self.cost, self.session.benchmarks)) * (least - number)
        left = self.deadline - time.monotonic()
        if number == 1:
            self.session.again = AGAIN if 2 * needed < left else 0
        elif self.session.again and needed > left:
            self.session.again = 0
            print("The time is short: disturbed runs are not repeated from now on.", file=sys.stderr)

    def remaining(self) -> str:
        """For the progress line: the time to the deadline, or to the end of the rounds."""
        if self.minutes:
            left = self.deadline - time.monotonic()
        elif len(self.costs) == len(self.session.benchmarks):
            left = sum(self.cost(b) * (self.rounds - self.done.get(b.name, 0)) for b in self.session.benchmarks)
        else:
            return ""
        return f"{max(0, int(left)) // 60}:{max(0, int(left)) % 60:02} left"

    def say(self, number: int) -> None:
        seconds = time.monotonic() - self.started
        print(f"round {number} done after {seconds:.0f} s" + (f", {left}" if (left := self.remaining()) else ""),
              file=sys.stderr, flush=True)
