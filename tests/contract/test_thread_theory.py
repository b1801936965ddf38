"""The analytic checks of the thread kind: what must be true of a replica, and what theory says about many.

Seeds are fixed. `python -m tests.contract.thread_mutations` breaks the model and shows which of these notice.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from jobs.kinds.thread import partials, reference_replica, rows, tables, theory
from jobs.kinds.thread import report_estimates as estimates
from tests.contract.thread_bench import (
    FAR,
    FREE,
    POLICIES,
    cell,
    computed,
    law,
    planned,
    poisson,
    ratio,
    replicas,
    result,
    total,
    z_of,
)

JOINS = [("none", 0), ("suspend", 0), ("suspend", 0.7)]


def alone(row: dict[str, int]) -> int:
    """T1': the replica's work with all costs, on one core that never has to switch back."""
    return row["work_ns"] + row["overhead_ns"]


# What must be true of every replica, exactly


@pytest.mark.parametrize(("join", "join_cost"), JOINS)
def test_01_one_core_takes_all_work_and_all_costs(join: str, join_cost: float) -> None:
    """p = 1: T = sum W + N dispatch + (N - R) spawn + J join, every policy; round_robin: + dispatch for each slice but
    a thread's first. J = continuations.
    """
    plan = planned(
        cores=1,
        scheduler=list(POLICIES),
        quantum_us=30,
        join=join,
        join_cost_us=join_cost,
        thread_count=20,
        replicas=40,
    )
    found = replicas(plan)
    for number, row in enumerate(found):
        joins = found[number % 40]["switches"] - row["threads"]
        assert (joins > 0) == (join == "suspend")
        again = row["switches"] - joins - row["threads"]
        assert (again > 0) == (POLICIES[number // 40] == "round_robin")
        costs = (row["threads"] + again) * 1000 + (row["threads"] - 20) * 100 + joins * round(join_cost * 1000)
        assert row["makespan_ns"] == row["work_ns"] + costs
        assert row["attempts"] == 0


def test_01_one_core_may_wait_for_nothing_when_it_blocks() -> None:
    """p = 1, join block: as above while no thread has children."""
    for row in replicas(planned(cores=1, scheduler=["fifo", "lifo"], join="block", max_depth=0, replicas=20)):
        assert row["makespan_ns"] == row["work_ns"] + row["threads"] * 1000


@pytest.mark.parametrize("join", ["none", "suspend", "block"])
@pytest.mark.parametrize("arrival", [{"process": "batch"}, poisson(5)], ids=lambda each: each["process"])
def test_02_enough_cores_take_the_span(join: str, arrival: dict[str, Any]) -> None:
    """p >= N, fifo and lifo: T_p = span. 64 cores, 62 threads."""
    spawn = law("fixed", children=2)
    cost = 0 if join == "none" else 0.5
    plan = planned(
        cores=64,
        scheduler=["fifo", "lifo"],
        join=join,
        join_cost_us=cost,
        spawn=spawn,
        thread_count=2,
        max_depth=4,
        replicas=100,
        arrival=arrival,
    )
    for row in replicas(plan):
        assert row["threads"] == 62
        assert row["makespan_ns"] == row["span_ns"] > row["span_work_ns"]
        assert row["n_waited"] == 0


@pytest.mark.parametrize("scheduler", ["fifo", "lifo"])
@pytest.mark.parametrize("join", ["none", "suspend"])
def test_03_a_global_queue_is_greedy(join: str, scheduler: str) -> None:
    """Graham, Brent: max(ceil(T1'/p), span) <= T_p <= floor((T1' + (p-1) span) / p)."""
    plan = planned(cores=[2, 8, 64], scheduler=scheduler, join=join, thread_count=30, replicas=60)
    for number, row in enumerate(replicas(plan)):
        cores, work, span = (2, 8, 64)[number // 60], alone(row), row["span_ns"]
        assert max(-(-work // cores), span) <= row["makespan_ns"] <= (work + (cores - 1) * span) // cores


def test_03_the_greedy_bound_is_attained() -> None:
    """Nine equal tasks on eight cores take two rounds, which is the bound."""
    work = law("fixed", mean_us=5)
    for scheduler in ("fifo", "lifo"):
        plan = planned(cores=8, scheduler=scheduler, thread_count=9, max_depth=0, replicas=1, work=work, **FREE)
        assert total(cell(plan), "greedy_ratio") == 2**20


# Branching


@pytest.mark.parametrize(
    "spawn",
    [
        law("binomial", children=2, probability=0.4),
        law("binomial", children=4, probability=0.25),
        law("geometric", mean=0.9),
        law("poisson", mean=1.2),
        law("pmf", probabilities=[0.5, 0.2, 0.2, 0, 0.1]),
    ],
    ids=lambda spawn: spawn["distribution"],
)
def test_04_populations_are_galton_watson(spawn: dict[str, Any]) -> None:
    """E Z_d = R m^d; Var Z_d = R s^2 m^(d-1) (m^d - 1)/(m - 1), or R s^2 d; E N = R (1 - m^(D+1))/(1 - m)."""
    roots, count = 50, 3000
    plan = planned(thread_count=roots, max_depth=6, replicas=count, cores=2, spawn=spawn)
    part, table = cell(plan), plan.spec["offspring"]
    weights = tables.offspring_weights(table, 0)
    mean = float(tables.mean_offspring(table, 0))
    spread = float(sum(value**2 * weight for value, weight in weights)) - mean**2
    for depth in range(1, 7):
        sums, squares = part["depth_sum"][depth], part["depth_sumsq"][depth]
        growth = depth if abs(mean - 1) < 1e-6 else (mean**depth - 1) / (mean - 1)
        expected = roots * spread * mean ** (depth - 1) * growth
        assert abs(sums / count - roots * mean**depth) < FAR * math.sqrt(expected / count)
        assert 0.85 < float(estimates.variance(count, sums, squares)) / expected < 1.15
    whole = 7 * roots if abs(mean - 1) < 1e-6 else roots * (1 - mean**7) / (1 - mean)
    assert float(sum(theory.threads_by_depth(table, roots, 6))) == pytest.approx(whole, rel=1e-6)
    assert abs(z_of(part, "threads", Fraction(whole))) < FAR


def test_04_work_does_not_depend_on_children() -> None:
    """Wald: the work of N threads of exponential work S has mean S E N and variance S^2 (E N + Var N); N = 1 or 3."""
    count, spawn = 20_000, law("binomial", children=2, probability=0.5)
    part = cell(planned(thread_count=1, max_depth=1, replicas=count, cores=1, spawn=spawn))
    assert abs(z_of(part, "work_ns", Fraction(2 * 10**5))) < FAR
    variance = estimates.variance(count, total(part, "work_ns"), total(part, "work_ns", "sumsq"))
    assert float(variance) / (3 * 10**10) == pytest.approx(1, abs=0.1)


def test_05_populations_die_out_as_often_as_they_must() -> None:
    """P(deepest < d) = (f^(d)(0))^R, f the offspring law's generating function: here f(x) = 0.6 + 0.4 x^2."""
    count = 20_000
    plan = planned(thread_count=2, max_depth=8, replicas=count, cores=1)
    part = cell(plan)
    reached = dict(partials.pairs(part["spread"][rows.SPREAD.index("max_depth_reached")]))
    extinct = 0.0
    for depth in range(1, 9):
        extinct = 0.6 + 0.4 * extinct**2
        expected = extinct**2
        observed = sum(reached.get(each, 0) for each in range(depth)) / count
        assert abs(observed - expected) < FAR * math.sqrt(expected * (1 - expected) / count)
    told = next(each for each in result(plan)["cells"][0]["theory"] if each["name"] == "gw_extinction")
    assert told["expected"] == pytest.approx(expected, rel=1e-6)
    assert told["observed"] == pytest.approx(observed)


@pytest.mark.parametrize("scheduler", POLICIES)
def test_06_full_trees_are_exact(scheduler: str) -> None:
    """Fixed k: N = R (k^(D+1) - 1)/(k - 1), span = (D + 1) w, T1 = N w."""
    shape = {"thread_count": 5, "max_depth": 4, "replicas": 2, "spawn": law("fixed", children=3)}
    part = cell(planned(cores=1, scheduler=scheduler, work=law("fixed", mean_us=2), **shape, **FREE))
    threads = 5 * (3**5 - 1) // 2
    assert total(part, "threads") == 2 * threads
    assert total(part, "span_ns") == 2 * 5 * 2000
    assert total(part, "makespan_ns") == total(part, "work_ns") == 2 * threads * 2000
    assert part["depth_sum"] == [2 * 5 * 3**depth for depth in range(5)]


# Queues


def erlang_c(cores: int, offered: float) -> float:
    """C(c, a), by b = a b/(i + a b) from b = 1 for i = 1..c, C = b/(1 - a/c (1 - b))."""
    blocked = 1.0
    for servers in range(1, cores + 1):
        blocked = offered * blocked / (servers + offered * blocked)
    return blocked / (1 - offered / cores * (1 - blocked))


def queue(cores: int, load: float, roots: int, warmup: int, **others: Any) -> Any:
    """Roots without children that arrive for ever at this load of 100 us of work each."""
    shape = {"scheduler": "fifo", "max_depth": 0, "dispatch_cost_us": 0, "thread_count": roots}
    rate = load * cores / 0.1
    return planned(cores=cores, arrival=poisson(rate, warmup), **{**shape, **others})


@pytest.mark.parametrize(("cores", "load"), [(1, 0.5), (4, 0.8), (16, 0.9)])
@pytest.mark.parametrize("scheduler", ["fifo", "lifo"])
def test_07_mmc_waits(cores: int, load: float, scheduler: str) -> None:
    """M/M/c: P(wait) = C(c, a), Wq = C S/(c - a), in any order that does not look at the work."""
    part = cell(queue(cores, load, 20_000, 3_000, replicas=120, scheduler=scheduler))
    assert total(part, "n_measured") == total(part, "n_sojourns") == 120 * 17_000
    chance = erlang_c(cores, cores * load)
    for number, expected, near in ((1, chance, 0.01), (0, chance * 1e5 / (cores * (1 - load)), 0.03)):
        observed, error = ratio(part, number)
        assert abs(observed - expected) < FAR * error
        assert observed == pytest.approx(expected, rel=near)


def test_07_the_result_knows_erlang() -> None:
    plan = queue(4, 0.8, 5_000, 1_000, replicas=100)
    told = {each["name"]: each for each in result(plan)["cells"][0]["theory"]}
    assert told["queue_p_wait"]["expected"] == pytest.approx(erlang_c(4, 3.2))
    assert told["queue_mean_wait_us"]["expected"] == pytest.approx(erlang_c(4, 3.2) * 100 / 0.8)
    assert told["offered_load_utilization"]["expected"] == pytest.approx(0.8)
    assert all(each["applies"] for each in told.values())
    assert max(abs(told[name]["z"]) for name in ("queue_p_wait", "queue_mean_wait_us")) < FAR


@pytest.mark.parametrize(
    ("work", "square"),
    [
        (law("fixed", mean_us=100), 1e10),
        (law("uniform", min_us=50, max_us=150), 1e10 + 1e10 / 12),
        (law("hyperexponential", mean_us=100, scv=4), 5e10),
    ],
    ids=lambda each: each["distribution"] if isinstance(each, dict) else "",
)
def test_08_mg1_waits(work: dict[str, Any], square: float) -> None:
    """M/G/1: Wq = lambda E[S^2]/(2 (1 - rho)); M/D/1: rho S/(2 (1 - rho)). A dispatch cost is part of S."""
    load, cost = 0.6, 5.0
    plan = queue(1, load, 20_000, 3_000, replicas=200, work=work, dispatch_cost_us=cost)
    rate, longer = load / 1e5, square + 2 * cost * 1e8 + (cost * 1e3) ** 2
    expected = rate * longer / (2 * (1 - rate * (1e5 + cost * 1e3)))
    observed, error = ratio(cell(plan), 0)
    assert abs(observed - expected) < FAR * error
    assert observed == pytest.approx(expected, rel=0.03)
    told = {each["name"]: each["expected"] for each in result(plan)["cells"][0]["theory"]}
    assert told["queue_mean_wait_us"] == pytest.approx(expected / 1000, rel=1e-4)


@pytest.mark.parametrize("scheduler", ["fifo", "lifo", "work_stealing"])
@pytest.mark.parametrize(("roots", "cores"), [(100, 8), (64, 64), (10, 1)])
def test_09_exponential_bags_take_the_harmonic_makespan(roots: int, cores: int, scheduler: str) -> None:
    """E T = S ((R - p)/p + H_p), Var T = S^2 ((R - p)/p^2 + sum 1/i^2, i <= p)."""
    count = 4000
    plan = planned(
        thread_count=roots, max_depth=0, cores=cores, replicas=count, scheduler=scheduler, dispatch_cost_us=0
    )
    mean, part = 100_000, cell(plan)
    expected = theory.bag_makespan(Fraction(mean), roots, cores)
    assert abs(z_of(part, "makespan_ns", expected)) < FAR
    variance = mean**2 * ((roots - cores) / cores**2 + sum(1 / i**2 for i in range(1, cores + 1)))
    observed = estimates.variance(count, total(part, "makespan_ns"), total(part, "makespan_ns", "sumsq"))
    assert 0.85 < float(observed) / variance < 1.15
    claimed = result(plan)["cells"][0]["theory"][1]
    assert claimed["applies"]
    assert claimed["expected"] == pytest.approx(float(expected) / 1000)


# Bookkeeping


@pytest.mark.parametrize("scheduler", POLICIES)
@pytest.mark.parametrize("arrival", [{"process": "batch"}, poisson(200)], ids=lambda each: each["process"])
def test_10_time_is_conserved(scheduler: str, arrival: dict[str, Any]) -> None:
    """busy + steal + idle = p T_p; busy = T1' (round_robin: + dispatch for each slice but the first); work_stealing:
    idle is unfinished last attempts, in [0, p steal).
    """
    shape = {"thread_count": 30, "replicas": 30, "join": "none", "arrival": arrival}
    turns = {"quantum_us": 20} if scheduler == "round_robin" else {}
    for cores in (2, 8, 64):
        for row in replicas(planned(cores=cores, scheduler=scheduler, **turns, **shape)):
            again = row["switches"] - row["threads"]
            assert row["busy_ns"] == alone(row) + again * 1000
            assert again == 0 or scheduler == "round_robin"
            assert row["busy_ns"] + row["steal_ns"] + row["idle_ns"] == cores * row["makespan_ns"]
            assert row["steal_ns"] == row["attempts"] * 1000
            most = cores * 1000 if scheduler == "work_stealing" else cores * row["makespan_ns"]
            assert 0 <= row["idle_ns"] < most
            assert (row["attempts"] > 0) == (scheduler == "work_stealing")


@pytest.mark.parametrize("join", ["none", "suspend"])
def test_11_the_tree_does_not_depend_on_the_schedule(join: str) -> None:
    """T1', N, depths and span are the same under every policy on any number of cores."""
    plan = planned(
        cores=[1, 2, 8, 64], scheduler=list(POLICIES), quantum_us=50, join=join, thread_count=40, replicas=50
    )
    cells = computed(plan)["cells"]
    assert len(cells) == 16
    for name in ("work_ns", "overhead_ns", "span_ns", "span_work_ns", "threads", "max_depth_reached"):
        assert len({(total(part, name), total(part, name, "sumsq")) for part in cells.values()}) == 1
    assert len({str(part["depth_sumsq"]) for part in cells.values()}) == 1
    spans = [total(cells[str(number)], "makespan_ns") for number in range(16)]
    assert spans[0] == spans[1] == spans[3] < spans[2], "one core takes T1' without preemption"
    assert len(set(spans)) > 8


def test_11_arrivals_are_the_same_in_every_cell() -> None:
    """Endless cores end with the last root's path, whatever the policy: arrivals and trees are common."""
    plan = planned(
        cores=64, scheduler=["fifo", "lifo", "round_robin"], arrival=poisson(2), thread_count=20, replicas=30
    )
    cells = computed(plan)["cells"]
    assert len({(total(part, "makespan_ns"), total(part, "span_ns")) for part in cells.values()}) == 1


@pytest.mark.parametrize("cores", [2, 8, 32])
def test_13_stealing_costs_what_theory_allows(cores: int) -> None:
    """Blumofe, Leiserson: T_p <= T1'/p + O(span). With steal cost <= mean work/10: mean of (p T_p - T1')/(p span) <= 2,
    and T_p <= T1'/p + 2 span in each replica.
    """
    shape = {"thread_count": 2, "max_depth": 10, "spawn": law("binomial", children=2, probability=0.8), "replicas": 60}
    excess = []
    for row in replicas(planned(cores=cores, steal_cost_us=10, **shape)):
        waste = cores * row["makespan_ns"] - alone(row)
        excess.append(waste / (cores * row["span_ns"]))
    assert sum(excess) / len(excess) <= 2
    assert max(excess) <= 2


def test_13_deques_stay_short() -> None:
    """No deque ever holds more than (k_max - 1) D + k_max threads."""
    plan = planned(
        cores=4, thread_count=5, max_depth=6, spawn=law("binomial", children=4, probability=0.4), replicas=20
    )
    longest = 0

    class Watched(reference_replica.Replica):
        def _dispatch(self) -> None:
            nonlocal longest
            longest = max(longest, *(len(core.ready) for core in self.cores))
            super()._dispatch()

    for replica in range(20):
        Watched(plan.spec, 0, replica)
    assert 8 < longest <= 3 * 6 + 4


@pytest.mark.parametrize("scheduler", POLICIES)
def test_14_waits_are_the_integral_of_the_ready_queue(scheduler: str) -> None:
    """Little: integral of ready(t) dt = sum of waits, exactly. The reference integrates, the kernel adds."""
    turns = {"quantum_us": 20} if scheduler == "round_robin" else {}
    plan = planned(cores=[2, 8], scheduler=scheduler, thread_count=30, replicas=5, arrival=poisson(300, 10), **turns)
    for unit, row in enumerate(replicas(plan)):
        replica = reference_replica.Replica(plan.spec, *divmod(unit, 5))
        assert replica.ready_integral == replica.all_waits > row["sum_wait_ns"] == sum(replica.waits) > 0
        assert row["mean_ready_queue"] == (replica.ready_integral << 20) // row["makespan_ns"]


def test_15_mmc_tails() -> None:
    """P(Wq > t) = C exp(-(c/S - lambda) t), fifo, at edges of the histogram."""
    cores, load = 4, 0.8
    part = cell(queue(cores, load, 20_000, 3_000, replicas=200))
    count, seen, looks = total(part, "n_measured"), 0, 0
    for index, times in partials.pairs(part["wait"]):
        seen += times
        edge = rows.bin_edges(index)[1] + 0.5
        expected = erlang_c(cores, cores * load) * math.exp(-cores * (1 - load) * edge / 1e5)
        if expected > 0.01:
            looks += 1
            assert 1 - seen / count == pytest.approx(expected, rel=0.05, abs=0.002)
    assert looks > 100


@pytest.mark.parametrize(
    "work", [law("exponential", mean_us=100), law("fixed", mean_us=100)], ids=lambda work: work["distribution"]
)
def test_16_short_turns_share_the_core(work: dict[str, Any]) -> None:
    """M/G/1-PS: mean sojourn S/(1 - rho), whatever the law of the work."""
    load = 0.7
    plan = queue(1, load, 10_000, 2_000, replicas=40, scheduler="round_robin", quantum_us=1, work=work)
    observed, error = ratio(cell(plan), 2)
    assert abs(observed - 1e5 / (1 - load)) < FAR * error + 1e3
    assert observed == pytest.approx(1e5 / (1 - load), rel=0.04)
    told = result(plan)["cells"][0]["theory"][-1]
    assert (told["name"], told["expected"]) == ("processor_sharing_sojourn_us", pytest.approx(100 / (1 - load)))


@pytest.mark.parametrize(("work_us", "slices"), [(100, 10), (101, 11), (9, 1), (10, 1)])
def test_16_slices_are_counted(work_us: float, slices: int) -> None:
    """Equal threads in turn take ceil(W/q) slices each; one alone goes on without a switch."""
    shape = {"cores": 1, "scheduler": "round_robin", "quantum_us": 10, "max_depth": 0, "replicas": 1}
    for roots in (1, 2, 5):
        [row] = replicas(planned(thread_count=roots, work=law("fixed", mean_us=work_us), **shape))
        assert row["switches"] == (roots * slices if roots > 1 else 1)
        assert row["makespan_ns"] == roots * work_us * 1000 + row["switches"] * 1000


@pytest.mark.parametrize("scheduler", ["fifo", "lifo"])
def test_17_blocked_pools_deadlock_when_they_must(scheduler: str) -> None:
    """Every thread above D has k >= 1 children: R >= p always deadlocks under fifo, since the first p roots hold all
    cores; R < p with D = 1 never does; R < p with D >= 2 may.
    """

    def outcomes(**shape: Any) -> list[int]:
        plan = planned(scheduler=scheduler, join="block", replicas=50, spawn=law("fixed", children=2), **shape)
        found: list[int] = cell(plan)["outcomes"]
        return found

    assert outcomes(thread_count=4, cores=4, max_depth=1) == [0, 50, 0]
    assert outcomes(thread_count=9, cores=4, max_depth=3) == [0, 50, 0]
    assert outcomes(thread_count=3, cores=4, max_depth=1) == [50, 0, 0]
    assert outcomes(thread_count=1, cores=2, max_depth=2) == [0, 50, 0]
    assert outcomes(thread_count=1, cores=64, max_depth=4) == [50, 0, 0]
    some = outcomes(thread_count=2, cores=5, max_depth=2)
    assert 0 < some[1] < 50


@pytest.mark.parametrize("scheduler", POLICIES)
def test_17_who_does_not_block_does_not_deadlock(scheduler: str) -> None:
    """join none and suspend always end; a deadlock is seen at the moment when the last core blocks."""
    for join in ("none", "suspend"):
        plan = planned(
            scheduler=scheduler,
            join=join,
            cores=2,
            thread_count=9,
            max_depth=5,
            replicas=40,
            spawn=law("fixed", children=2),
        )
        assert cell(plan)["outcomes"] == [40, 0, 0]
    if scheduler == "fifo":
        shape = {"thread_count": 2, "cores": 2, "max_depth": 1, "work": law("fixed", mean_us=7), "replicas": 3}
        part = cell(planned(scheduler="fifo", join="block", spawn=law("fixed", children=1), **shape, **FREE))
        assert part["stuck"] == [3 * 7000, 3 * 7000**2]


@pytest.mark.parametrize("scheduler", POLICIES)
def test_18_the_load_is_what_is_offered(scheduler: str) -> None:
    """Trees that arrive: utilization = lambda E[N per root] (E W + dispatch + m' spawn)/p, m' = children a thread."""
    roots, cores, cost = 20_000, 8, 2.0
    threads = sum(0.8**depth for depth in range(11))
    rate = 0.7 * cores / (threads * (0.1 + cost / 1000) + (threads - 1) * 0.0001)
    turns = {"quantum_us": 1000} if scheduler == "round_robin" else {}
    plan = planned(
        scheduler=scheduler,
        cores=cores,
        thread_count=roots,
        join="none",
        replicas=12,
        dispatch_cost_us=cost,
        arrival=poisson(rate),
        work=law("fixed", mean_us=100),
        **turns,
    )
    observed = total(cell(plan), "utilization") / 12 / 2**20
    assert observed == pytest.approx(0.7, rel=0.01)
    told = next(each for each in result(plan)["cells"][0]["theory"] if each["name"] == "offered_load_utilization")
    assert told["expected"] == pytest.approx(0.7, rel=1e-4)


@pytest.mark.parametrize("join", ["none", "suspend"])
@pytest.mark.parametrize(
    "spawn",
    [law("binomial", children=0, probability=0.4), law("fixed", children=0)],
    ids=lambda each: each["distribution"],
)
def test_18_threads_without_children_join_nothing(join: str, spawn: dict[str, Any]) -> None:
    """A law that gives 0 children in every case costs no joins: the work of a root is W + dispatch."""
    costs = {"dispatch_cost_us": 2, "join_cost_us": 0 if join == "none" else 50}
    plan = planned(join=join, spawn=spawn, max_depth=3, arrival=poisson(1), work=law("fixed", mean_us=100), **costs)
    assert theory.work_of_a_root(plan.spec) == 102_000
