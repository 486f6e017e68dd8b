"""Seventeen sets of aggregates on real data: what an analyst of each house would ask about its groups.

Retail stands in for ProBE's sales, taxi is its and MIDE's third data set, diabetes and flights are ours. In each the
first aggregate is the plain one, the others are filtered or summed. Bounds are what a house would declare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.decision.groups import Average, Groups, Total, codes, columns, most_frequent
from bench.decision.sources import ADULT, CPS, diabetes, flights, retail, taxi


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Aggregates over the groups of one domain; averages are asked with the guard count(*) >= ``support``."""

    name: str
    data: str
    totals: tuple[Total, ...]
    averages: tuple[Average, ...] = ()
    support: int = 0
    touched: int = 1

    @property
    def groups(self) -> int:
        return len(self.totals[0].values)


def workloads() -> tuple[Workload, ...]:
    """All of them, in the order of the tables."""
    return tuple(make() for make in _ALL)


def _sales(groups: Groups) -> tuple[Total, ...]:
    r = retail()
    return (
        groups.rows(),
        groups.rows("groceries", r.department == "GROCERY"),
        groups.rows("own brand", r.private),
        groups.sum("sum(sales), cents up to 10.00", r.cents, 1000),
        groups.rows("evening", r.hour >= 17),
        groups.rows("reduced", r.saved > 0),
    )


def store_day() -> Workload:
    """43 stores on 14 days, as ProBE has 43 cities on 14 days."""
    r = retail()
    days = Groups(codes(r.store, most_frequent(r.store, 43)), codes(r.day, range(70, 84)))
    return Workload("store x day", "retail", _sales(days))


def store_week() -> Workload:
    r = retail()
    weeks = Groups(codes(r.store, most_frequent(r.store, 60)), codes(r.week, range(14, 27)))
    return Workload("store x week", "retail", _sales(weeks))


def store_households() -> Workload:
    """Every store over a year, with the household as unit: two stores each."""
    r = retail()
    stores = Groups(codes(r.store)).bounded(r.household, 2)
    return Workload(
        "store, households",
        "retail",
        (
            stores.people("count(distinct household)", r.household),
            stores.people("with groceries", r.household, r.department == "GROCERY"),
            stores.people("with produce", r.household, r.department == "PRODUCE"),
            stores.people("with own brand", r.household, r.private),
            stores.spent("sum(sales), up to 200.00 each", r.household, r.cents, 20_000),
            stores.people("in the evening", r.household, r.hour >= 17),
        ),
        touched=2,
    )


def category_households() -> Workload:
    """The 150 largest categories of products, with the household as unit: ten categories each."""
    r = retail()
    largest = most_frequent(r.category[r.category != np.array(None)], 150)
    groups = Groups(codes(r.category, largest)).bounded(r.household, 10)
    return Workload(
        "category, households",
        "retail",
        (
            groups.people("count(distinct household)", r.household),
            groups.people("own brand", r.household, r.private),
            groups.people("reduced", r.household, r.saved > 0),
            groups.spent("sum(sales), up to 20.00 each", r.household, r.cents, 2000),
            groups.people("two and more at once", r.household, r.quantity >= 2),
            groups.people("in the evening", r.household, r.hour >= 17),
        ),
        touched=10,
    )


def store_week_averages() -> Workload:
    """Average values of a store's week (ProBE, Fig. 10)."""
    r = retail()
    weeks = Groups(codes(r.store, most_frequent(r.store, 60)), codes(r.week, range(14, 27)))
    return Workload(
        "store x week, averages",
        "retail",
        (weeks.rows(),),
        (
            weeks.average("avg(sales), cents up to 20.00", r.cents, 0, 2000),
            weeks.average("avg(hour)", 100 * r.hour, 0, 2300),
            weeks.average("avg(saved), cents up to 5.00", r.saved, 0, 500),
            weeks.average("share of own brand", 1000 * r.private, 0, 1000),
            weeks.average("avg(quantity), up to 5", 100 * r.quantity, 0, 500),
            weeks.average("share of produce", 1000 * (r.department == "PRODUCE"), 0, 1000),
        ),
        support=200,
    )


def _trips(groups: Groups) -> tuple[Total, ...]:
    t = taxi()
    return (
        groups.rows(),
        groups.rows("by card", t.payment == 1),
        groups.rows("in cash", t.payment == 2),
        groups.sum("sum(fare), cents up to 50.00", t.fare, 5000),
        groups.rows("two and more passengers", t.passengers >= 2),
        groups.rows("short", t.distance < 150),
    )


def zone() -> Workload:
    return Workload("zone", "taxi", _trips(Groups(codes(taxi().zone, range(1, 264)))))


def zone_month() -> Workload:
    t = taxi()
    return Workload("zone x month", "taxi", _trips(Groups(codes(t.zone, t.manhattan), codes(t.month, range(24, 36)))))


def zone_hour() -> Workload:
    t = taxi()
    return Workload("zone x hour", "taxi", _trips(Groups(codes(t.zone, t.manhattan), codes(t.hour, range(24)))))


def zone_hour_averages() -> Workload:
    t = taxi()
    hours = Groups(codes(t.zone, t.manhattan), codes(t.hour, range(24)))
    return Workload(
        "zone x hour, averages",
        "taxi",
        (hours.rows(),),
        (
            hours.average("avg(fare), cents up to 50.00", t.fare, 0, 5000),
            hours.average("avg(tip), cents up to 10.00", t.tip, 0, 1000),
            hours.average("avg(distance), up to 10 miles", t.distance, 0, 1000),
            hours.average("share in cash", 1000 * (t.payment == 2), 0, 1000),
            hours.average("avg(passengers), up to 6", 100 * t.passengers, 0, 600),
        ),
        support=200,
    )


def _encounters(groups: Groups) -> tuple[Total, ...]:
    d = diabetes()
    return (
        groups.rows(),
        groups.sum("sum(time_in_hospital)", d.days, 14),
        groups.rows("readmitted", d.again != "NO"),
        groups.rows("women", d.gender == "Female"),
        groups.rows("a week and longer", d.days >= 7),
        groups.rows("on insulin", d.insulin != "No"),
    )


def diagnosis() -> Workload:
    return Workload("diagnosis", "diabetes", _encounters(Groups(codes(diabetes().diagnosis))))


def diagnosis_age() -> Workload:
    d = diabetes()
    groups = Groups(codes(d.diagnosis, most_frequent(d.diagnosis, 60)), codes(d.age))
    return Workload("diagnosis x age", "diabetes", _encounters(groups))


def diagnosis_averages() -> Workload:
    d = diabetes()
    groups = Groups(codes(d.diagnosis))
    return Workload(
        "diagnosis, averages",
        "diabetes",
        (groups.rows(),),
        (
            groups.average("avg(time_in_hospital)", 100 * d.days, 100, 1400),
            groups.average("avg(medications), up to 40", 100 * d.medications, 0, 4000),
            groups.average("avg(laboratory), up to 100", 10 * d.laboratory, 0, 1000),
            groups.average("share readmitted", 1000 * (d.again != "NO"), 0, 1000),
            groups.average("share of women", 1000 * (d.gender == "Female"), 0, 1000),
        ),
        support=200,
    )


def _delays(groups: Groups) -> tuple[Total, ...]:
    f = flights()
    return (
        groups.rows(),
        groups.rows("late", f.arrived > 15),
        groups.sum("sum(delay), minutes up to 120", f.arrived, 120),
        groups.rows("left late", f.left > 15),
        groups.rows("an hour late", f.arrived > 60),
        groups.rows("evening", f.hour >= 17),
    )


def destination_month() -> Workload:
    f = flights()
    return Workload("dest x month", "flights", _delays(Groups(codes(f.destination), codes(f.month))))


def carrier_destination() -> Workload:
    """The routes that are flown are public."""
    f = flights()
    pairs = codes(f.carrier)[0] * 1000 + codes(f.destination)[0]
    return Workload("carrier x dest", "flights", _delays(Groups(codes(pairs))))


def destination_month_averages() -> Workload:
    f = flights()
    months = Groups(codes(f.destination), codes(f.month))
    return Workload(
        "dest x month, averages",
        "flights",
        (months.rows(),),
        (
            months.average("avg(delay at departure), -30 to 120", 10 * f.left, -300, 1200),
            months.average("avg(delay at arrival), -60 to 120", 10 * f.arrived, -600, 1200),
            months.average("share late", 1000 * (f.arrived > 15), 0, 1000),
            months.average("share an hour late", 1000 * (f.arrived > 60), 0, 1000),
            months.average("share cancelled", 1000 * np.isnan(f.left), 0, 1000),
        ),
        support=200,
    )


def work() -> Workload:
    """Adult: education by occupation."""
    education, occupation, hours, income, age, sex = columns(
        ADULT, "education", "occupation", "hours_per_week", "income", "age", "sex"
    )
    groups = Groups(codes(education), codes(occupation))
    return Workload(
        "education x occupation",
        "adult",
        (
            groups.rows(),
            groups.rows("above 50K", np.char.startswith(income.astype(str), ">")),
            groups.rows("over 45 hours", hours > 45),
            groups.sum("sum(hours), up to 80", hours, 80),
            groups.rows("women", sex == "Female"),
            groups.rows("under 30", age < 30),
        ),
    )


def taxes() -> Workload:
    """CPS: state by age."""
    state, age, wages, status, children = columns(CPS, "fips", "age_head", "e00200", "MARS", "nu18")
    groups = Groups(codes(state), codes(np.clip(age, 20, 79) // 10))
    return Workload(
        "state x age",
        "cps",
        (
            groups.rows(),
            groups.sum("sum(wages), thousands up to 200", wages / 1000, 200),
            groups.rows("married", status == 2),
            groups.rows("with children", children > 0),
            groups.rows("wages above 100,000", wages > 100_000),
            groups.rows("no wages", wages == 0),
        ),
    )


_ALL: tuple[Callable[[], Workload], ...] = (
    *(store_day, store_week, store_households, category_households, store_week_averages),
    *(zone, zone_month, zone_hour, zone_hour_averages),
    *(diagnosis, diagnosis_age, diagnosis_averages),
    *(destination_month, carrier_destination, destination_month_averages),
    *(work, taxes),
)
