"""The rows of the demo: invented, except Adult, and the same in every process and on every machine.

Each table is a function that yields tuples in column order. The draws come from a generator with a fixed seed:
this is scenery, and no noise of an answer ever comes from here.
"""

from __future__ import annotations

import csv
import io
import lzma
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.resources import files
from itertools import accumulate
from random import Random  # fixed seed: demo data only
from typing import TypeAlias, TypeVar

SEED = 20250101
PATIENTS = 60_000
ORDERS = 300_000
CUSTOMERS = 20_000
YEAR = 2025
GENDERS = ("female", "male", "other")
DISEASE_TYPES = ("viral", "bacterial", "chronic", "injury", "other")
CATEGORIES = ("food", "toys", "books", "clothes", "garden")


@dataclass(frozen=True, slots=True)
class Disease:
    name: str
    type: str
    patients: int
    age: int  # mean
    spread: int  # standard deviation of the age
    women: float  # share
    capacity: int  # beds of its ward


@dataclass(frozen=True, slots=True)
class City:
    name: str
    region: str
    population: int  # United States census of 2020


DISEASES = (
    Disease("influenza", "viral", 7313, 38, 22, 0.52, 420),
    Disease("hypertension", "chronic", 6604, 63, 12, 0.50, 380),
    Disease("covid-19", "viral", 5871, 47, 21, 0.51, 400),
    Disease("diabetes", "chronic", 5063, 59, 14, 0.47, 300),
    Disease("asthma", "chronic", 4288, 31, 20, 0.55, 260),
    Disease("pneumonia", "bacterial", 3749, 61, 22, 0.48, 280),
    Disease("back pain", "other", 3342, 48, 15, 0.53, 150),
    Disease("fracture", "injury", 2917, 42, 26, 0.49, 210),
    Disease("heart failure", "chronic", 2584, 74, 10, 0.46, 190),
    Disease("gastroenteritis", "viral", 2283, 24, 21, 0.52, 120),
    Disease("migraine", "other", 1956, 37, 13, 0.74, 80),
    Disease("copd", "chronic", 1731, 69, 10, 0.45, 130),
    Disease("urinary infection", "bacterial", 1522, 52, 21, 0.81, 90),
    Disease("concussion", "injury", 1318, 26, 17, 0.41, 75),
    Disease("bronchitis", "viral", 1169, 40, 24, 0.51, 70),
    Disease("arthritis", "chronic", 1024, 66, 11, 0.67, 85),
    Disease("burn", "injury", 893, 33, 20, 0.38, 60),
    Disease("sprain", "injury", 787, 28, 14, 0.47, 40),
    Disease("stroke", "other", 694, 72, 12, 0.49, 95),
    Disease("tonsillitis", "bacterial", 617, 15, 10, 0.54, 35),
    Disease("kidney stones", "other", 548, 46, 13, 0.36, 40),
    Disease("depression", "chronic", 489, 41, 17, 0.63, 70),
    Disease("chickenpox", "viral", 431, 8, 6, 0.49, 30),
    Disease("epilepsy", "chronic", 382, 34, 21, 0.48, 40),
    Disease("appendicitis", "other", 341, 23, 13, 0.45, 35),
    Disease("cellulitis", "bacterial", 297, 56, 18, 0.47, 30),
    Disease("shingles", "viral", 263, 67, 12, 0.59, 20),
    Disease("whiplash", "injury", 236, 36, 13, 0.56, 15),
    Disease("hepatitis", "viral", 207, 44, 15, 0.40, 25),
    Disease("sepsis", "bacterial", 184, 68, 16, 0.46, 30),
    Disease("measles", "viral", 159, 7, 5, 0.50, 20),
    Disease("anaemia", "other", 141, 39, 20, 0.72, 15),
    Disease("tuberculosis", "bacterial", 122, 43, 17, 0.39, 20),
    Disease("parkinson", "chronic", 108, 73, 8, 0.41, 15),
    Disease("lyme disease", "bacterial", 93, 41, 19, 0.48, 10),
    Disease("meningitis", "bacterial", 79, 16, 13, 0.45, 15),
    Disease("frostbite", "injury", 64, 45, 16, 0.24, 8),
    Disease("malaria", "other", 53, 35, 14, 0.37, 8),
    Disease("tetanus", "bacterial", 42, 58, 17, 0.43, 6),
    Disease("rabies", "viral", 36, 30, 17, 0.40, 4),
)

CITIES = (
    City("New York", "northeast", 8_804_190),
    City("Philadelphia", "northeast", 1_603_797),
    City("Boston", "northeast", 675_647),
    City("Newark", "northeast", 311_549),
    City("Pittsburgh", "northeast", 302_971),
    City("Buffalo", "northeast", 278_349),
    City("Jacksonville", "southeast", 949_611),
    City("Charlotte", "southeast", 874_579),
    City("Atlanta", "southeast", 498_715),
    City("Raleigh", "southeast", 467_665),
    City("Miami", "southeast", 442_241),
    City("Tampa", "southeast", 384_959),
    City("Orlando", "southeast", 307_573),
    City("Chicago", "midwest", 2_746_388),
    City("Columbus", "midwest", 905_748),
    City("Indianapolis", "midwest", 887_642),
    City("Detroit", "midwest", 639_111),
    City("Milwaukee", "midwest", 577_222),
    City("Kansas City", "midwest", 508_090),
    City("Omaha", "midwest", 486_051),
    City("Minneapolis", "midwest", 429_954),
    City("Cleveland", "midwest", 372_624),
    City("Houston", "south", 2_304_580),
    City("San Antonio", "south", 1_434_625),
    City("Dallas", "south", 1_304_379),
    City("Austin", "south", 961_855),
    City("Nashville", "south", 689_447),
    City("Memphis", "south", 633_104),
    City("New Orleans", "south", 383_997),
    City("Denver", "mountain", 715_522),
    City("Colorado Springs", "mountain", 478_961),
    City("Boise", "mountain", 235_684),
    City("Salt Lake City", "mountain", 199_723),
    City("Phoenix", "southwest", 1_608_139),
    City("Las Vegas", "southwest", 641_903),
    City("Albuquerque", "southwest", 564_559),
    City("Tucson", "southwest", 542_629),
    City("Los Angeles", "pacific", 3_898_747),
    City("San Diego", "pacific", 1_386_932),
    City("San Jose", "pacific", 1_013_240),
    City("San Francisco", "pacific", 873_965),
    City("Seattle", "pacific", 737_015),
    City("Portland", "pacific", 652_503),
)
REGIONS = tuple(dict.fromkeys(city.region for city in CITIES))

# Per category: how often it is bought, and the lognormal of its price in dollars.
PRICES = {"food": (0.44, 3.2, 0.6), "toys": (0.13, 3.3, 0.7), "books": (0.16, 2.9, 0.5)}
PRICES |= {"clothes": (0.19, 4.0, 0.7), "garden": (0.08, 4.2, 0.9)}
SEASON = {  # weight of each month, January first
    "food": (10, 9, 10, 10, 10, 10, 10, 10, 10, 10, 12, 14),
    "toys": (5, 5, 6, 6, 6, 6, 6, 6, 7, 9, 20, 30),
    "books": (10, 8, 8, 8, 8, 9, 11, 10, 10, 9, 12, 18),
    "clothes": (9, 7, 10, 11, 10, 8, 7, 9, 12, 11, 13, 14),
    "garden": (2, 4, 12, 20, 20, 14, 9, 7, 7, 5, 2, 2),
}

# What the documentation of Adult lists; '?' is its word for unknown.
WORKCLASSES: tuple[str, ...] = (
    "?",
    "Federal-gov",
    "Local-gov",
    "Never-worked",
    "Private",
    "Self-emp-inc",
    "Self-emp-not-inc",
)
WORKCLASSES += ("State-gov", "Without-pay")
EDUCATIONS: tuple[str, ...] = (
    "Preschool",
    "1st-4th",
    "5th-6th",
    "7th-8th",
    "9th",
    "10th",
    "11th",
    "12th",
    "HS-grad",
    "Some-college",
)
EDUCATIONS += ("Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate")
MARITAL_STATUSES: tuple[str, ...] = (
    "Divorced",
    "Married-AF-spouse",
    "Married-civ-spouse",
    "Married-spouse-absent",
    "Never-married",
)
MARITAL_STATUSES += ("Separated", "Widowed")
OCCUPATIONS: tuple[str, ...] = (
    "?",
    "Adm-clerical",
    "Armed-Forces",
    "Craft-repair",
    "Exec-managerial",
    "Farming-fishing",
)
OCCUPATIONS += ("Handlers-cleaners", "Machine-op-inspct", "Other-service", "Priv-house-serv", "Prof-specialty")
OCCUPATIONS += ("Protective-serv", "Sales", "Tech-support", "Transport-moving")
RELATIONSHIPS = ("Husband", "Not-in-family", "Other-relative", "Own-child", "Unmarried", "Wife")
RACES = ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White")
COUNTRIES: tuple[str, ...] = ("?", "Cambodia", "Canada", "China", "Columbia", "Cuba", "Dominican-Republic", "Ecuador")
COUNTRIES += ("El-Salvador", "England", "France", "Germany", "Greece", "Guatemala", "Haiti")
COUNTRIES += ("Holand-Netherlands", "Honduras", "Hong", "Hungary", "India", "Iran", "Ireland", "Italy")
COUNTRIES += ("Jamaica", "Japan", "Laos", "Mexico", "Nicaragua", "Outlying-US(Guam-USVI-etc)", "Peru")
COUNTRIES += ("Philippines", "Poland", "Portugal", "Puerto-Rico", "Scotland", "South", "Taiwan", "Thailand")
COUNTRIES += ("Trinadad&Tobago", "United-States", "Vietnam", "Yugoslavia")

Row = tuple[str | int, ...]
T = TypeVar("T")
Urn: TypeAlias = tuple[list[T], list[float]]  # things, and the running sum of their weights


def wards() -> Iterator[Row]:
    """disease, capacity"""
    for disease in DISEASES:
        yield disease.name, disease.capacity


def cities() -> Iterator[Row]:
    """city, region, population"""
    for city in CITIES:
        yield city.name, city.region, city.population


def patients() -> Iterator[Row]:
    """patient_id, age, gender, disease, disease_type; admitted in no order of disease."""
    draw = Random(SEED)
    admissions = [disease for disease in DISEASES for _ in range(disease.patients)]
    draw.shuffle(admissions)
    for number, disease in enumerate(admissions, 1):
        age = min(100, max(0, round(draw.normalvariate(disease.age, disease.spread))))
        lot = draw.random()
        gender = "other" if lot < 0.006 else "female" if lot < 0.006 + 0.994 * disease.women else "male"
        yield number, age, gender, disease.name, disease.type


def orders() -> Iterator[Row]:
    """order_id, customer_id, city, region, category, amount, ordered_on; in the order of their dates."""
    draw = Random(SEED + 1)
    customers = range(1, CUSTOMERS + 1)
    weight = {city: city.population**0.7 for city in CITIES}  # big cities order less per head: they have shops
    homes = draw.choices(CITIES, list(weight.values()), k=CUSTOMERS)
    zeal = list(accumulate(draw.lognormvariate(0, 0.65) for _ in customers))
    buyers = [*customers, *draw.choices(customers, cum_weights=zeal, k=ORDERS - CUSTOMERS)]  # everybody buys once
    categories = draw.choices(CATEGORIES, [PRICES[category][0] for category in CATEGORIES], k=ORDERS)
    anywhere = _urn(weight)
    nearby = {region: _urn({c: w for c, w in weight.items() if c.region == region}) for region in REGIONS}
    days = {category: _urn(_calendar(SEASON[category])) for category in CATEGORIES}
    rows: list[tuple[date, int, City, str, int]] = []
    for customer, category in zip(buyers, categories, strict=True):
        home = homes[customer - 1]
        lot = draw.random()
        city = home if lot < 0.5 else _pick(draw, nearby[home.region] if lot < 0.85 else anywhere)
        _, mean, spread = PRICES[category]
        cents = min(50_000, round(100 * draw.lognormvariate(mean, spread)))
        rows.append((_pick(draw, days[category]), customer, city, category, cents))
    rows.sort(key=lambda row: row[0])
    for number, (day, customer, city, category, cents) in enumerate(rows, 1):
        amount = f"{cents // 100}.{cents % 100:02d}"
        yield number, customer, city.name, city.region, category, amount, day.isoformat()


def _calendar(season: tuple[int, ...]) -> dict[date, float]:
    """The days of the year with the season's weights, and more at week ends."""
    first = date(YEAR, 1, 1)
    days = (first + timedelta(n) for n in range((date(YEAR + 1, 1, 1) - first).days))
    return {day: season[day.month - 1] * (1.3 if day.weekday() >= 5 else 1.0) for day in days}


def _urn(weights: Mapping[T, float]) -> Urn[T]:
    return list(weights), list(accumulate(weights.values()))


def _pick(draw: Random, urn: Urn[T]) -> T:
    items, running = urn
    return items[bisect(running, draw.random() * running[-1])]


def adult() -> Iterator[Row]:
    """The real Adult in its own order, fifteen columns; an unknown value is '?', as the original has it."""
    packed = files("proxy").joinpath("data", "adult.csv.xz").read_bytes()
    reader = csv.reader(io.StringIO(lzma.decompress(packed).decode("ascii")))
    next(reader)
    for row in reader:
        yield tuple(row)
