"""The columns that the workloads are made of, each file read once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from bench.decision.groups import DATA, Column, codes, columns
from mechanisms.values import Lattice

RETAIL = "retail_completejourney/transactions.parquet"
PRODUCTS = "retail_completejourney/products.parquet"
TAXI = "nyc_taxi/yellow_2018_2020_sample.parquet"
DIABETES = "medical_diabetes130/diabetic_data.parquet"
FLIGHTS = "nycflights13/flights.parquet"
ADULT = "adult/adult.parquet"
CPS = "cps_taxcalc/cps_taxunits.parquet"


def missing() -> list[str]:
    """The files that this bench reads and that are not there."""
    return [file for file in (RETAIL, PRODUCTS, TAXI, DIABETES, FLIGHTS, ADULT, CPS) if not (DATA / file).is_file()]


@dataclass(frozen=True, slots=True, eq=False)
class Retail:
    """Grocery transactions; a household is a person."""

    household: Lattice
    store: Column
    week: Column
    day: Lattice
    hour: Lattice
    cents: Column
    saved: Column
    quantity: Column
    department: Column
    private: Column
    category: Column


@cache
def retail() -> Retail:
    """The transactions, with department and brand of the product."""
    household, store, product, quantity, sales, saved, week, at = columns(
        RETAIL,
        *("household_id", "store_id", "product_id", "quantity", "sales_value", "retail_disc", "week"),
        "transaction_timestamp",
    )
    known, department, brand, category = columns(PRODUCTS, "product_id", "department", "brand", "product_category")
    order = np.argsort(known)
    place = np.searchsorted(known[order], product).clip(max=len(known) - 1)
    hit = known[order][place] == product
    days = at.astype("datetime64[D]").astype(np.int64)
    hours = at.astype("datetime64[h]").astype(np.int64) % 24
    return Retail(
        codes(household)[0],
        store,
        week,
        days - days.min(),
        hours,
        100 * sales,
        100 * saved,
        quantity,
        np.where(hit, department[order][place], ""),
        hit & (brand[order][place] == "Private"),
        np.where(hit, category[order][place], np.array(None)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Taxi:
    """Trips; 10,000 of each month."""

    zone: Column
    hour: Lattice
    month: Lattice  # since January 2018
    payment: Column
    passengers: Column
    fare: Column  # cents
    tip: Column
    distance: Column  # hundredths of a mile
    manhattan: list[int]


@cache
def taxi() -> Taxi:
    zone, at, month, payment, passengers, fare, tip, distance = columns(
        TAXI,
        *("pickup_location_id", "pickup_datetime", "file_month", "payment_type", "passenger_count"),
        *("fare_amount", "tip_amount", "trip_distance"),
    )
    lines = (DATA / "nyc_taxi" / "taxi_zone_lookup.csv").read_text().splitlines()[1:]
    inside = [int(line.split(",")[0].strip('"')) for line in lines if line.split(",")[1].strip('"') == "Manhattan"]
    return Taxi(
        zone,
        at.astype("datetime64[h]").astype(np.int64) % 24,
        codes(month)[0],
        payment,
        passengers,
        100 * fare,
        100 * tip,
        100 * distance,
        inside,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Diabetes:
    """Hospital encounters."""

    diagnosis: Column
    age: Column
    days: Column
    medications: Column
    laboratory: Column
    emergencies: Column
    inpatient: Column
    again: Column
    gender: Column
    insulin: Column


@cache
def diabetes() -> Diabetes:
    return Diabetes(
        *columns(
            DIABETES,
            *("diag_1", "age", "time_in_hospital", "num_medications", "num_lab_procedures", "number_emergency"),
            *("number_inpatient", "readmitted", "gender", "insulin"),
        )
    )


@dataclass(frozen=True, slots=True, eq=False)
class Flights:
    """Flights from New York in 2013."""

    month: Column
    hour: Column
    left: Column  # delay at departure, NaN if cancelled
    arrived: Column
    carrier: Column
    destination: Column
    air: Column


@cache
def flights() -> Flights:
    return Flights(*columns(FLIGHTS, "month", "hour", "dep_delay", "arr_delay", "carrier", "dest", "air_time"))
