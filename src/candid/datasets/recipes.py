"""Where the downloadable data sets are, and how the files there become a table.

Every archive is at ``https://archive.ics.uci.edu/static/public/<number>/<slug>.zip`` and holds text files. Data sets
that are there only as spreadsheets, or in another form than the usual benchmark, are not listed.

The digest is that of the finished table (:func:`table_digest`), not of the archive: an archive may be packed anew
without any change in the data, and a mistake in reading it would go unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

__all__ = ["RECIPES", "Columns", "Recipe", "table_digest"]

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Recipe:
    """How to get one data set.

    Attributes
    ----------
    number, slug
        Its place in the UCI repository.
    files
        Text files to read from the archive, in this order; all have the same columns.
    columns
        Name of each column in the files; an empty name drops the column.
    digest
        SHA-256 of the finished table.
    title
        What it is, in one sentence.
    delimiter
        What separates columns; None is any run of blanks.
    header
        Whether the first line of each file holds names.
    comment
        Lines that start with this are skipped.
    text
        Columns of names instead of numbers, with the names in the order of their codes; None means alphabetical.
        A text column that is a target is a class target.
    class_names
        Better names for the classes of ``y``.
    official
        Whether the first file is the official training part.
    derive
        Makes the final columns from those read and the number of rows in each file.
    """

    number: int
    slug: str
    files: tuple[str, ...]
    columns: tuple[str, ...]
    digest: str
    title: str
    delimiter: str | None = ","
    header: bool = False
    comment: str | None = None
    text: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    official: bool = False
    derive: Callable[[Columns, list[int]], Columns] | None = None
    licence: str = "CC BY 4.0 (UCI repository terms)"

    @property
    def url(self) -> str:
        return f"https://archive.ics.uci.edu/static/public/{self.number}/{self.slug}.zip"


def table_digest(columns: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names and values of all columns: float32 for real columns, int32 for classes, little endian."""
    digest = hashlib.sha256()
    for name, values in columns.items():
        stored = values.astype("<i4") if values.dtype.kind in "iu" else values.astype("<f4") + np.float32(0)
        digest.update(f"{name}:{stored.dtype.str}:{len(stored)}\n".encode())
        digest.update(stored.tobytes())
    return digest.hexdigest()


def _numbered(stem: str, first: int, count: int) -> tuple[str, ...]:
    return tuple(f"{stem}{i}" for i in range(first, first + count))


def _abalone(columns: Columns, rows: list[int]) -> Columns:
    rings = columns.pop("y_rings")
    # Three classes of about equal size: up to 8 rings, 9 or 10, 11 and more.
    return {**columns, "y": np.digitize(rings, [9, 11]).astype(np.int32), "y_rings": rings}


def _winequality(columns: Columns, rows: list[int]) -> Columns:
    quality = columns.pop("y_quality")
    white = np.repeat(np.arange(2, dtype=np.int32), rows)
    return {**columns, "y": (quality - 3).astype(np.int32), "y_white": white, "y_quality": quality}


_WINE = (
    *("fixed_acidity", "volatile_acidity", "citric_acid", "residual_sugar", "chlorides", "free_so2", "total_so2"),
    *("density", "pH", "sulphates", "alcohol"),
)

RECIPES: dict[str, Recipe] = {
    "abalone": Recipe(
        number=1,
        slug="abalone",
        files=("abalone.data",),
        columns=(
            *("sex", "length", "diameter", "height", "whole_weight", "shucked_weight", "viscera_weight"),
            *("shell_weight", "y_rings"),
        ),
        text={"sex": ("M", "F", "I")},
        derive=_abalone,
        class_names=("1-8", "9-10", "11+"),
        title="UCI Abalone: number of rings (y_rings) or its class (y) from size and weight",
        digest="247c75fd0a8e06c1719326493ada32c8ff6b1ac37bf7f6f20ef1cf372666ba53",
    ),
    "adult": Recipe(
        number=2,
        slug="adult",
        files=("adult.data", "adult.test"),
        columns=(
            *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation"),
            *("relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "y"),
        ),
        comment="|",
        text=dict.fromkeys(
            (
                *("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex"),
                *("native_country", "y"),
            )
        ),
        official=True,
        title="UCI Adult: income above 50,000 dollars from census answers; '?' (unknown) is a level of its own",
        digest="708a3dd741880ac228edd6b65066fb93a9b01c5278d5bcb64700e10f608c4be9",
    ),
    "bike_hour": Recipe(
        number=275,
        slug="bike+sharing+dataset",
        files=("hour.csv",),
        columns=(
            *("", "", "season", "date_year", "month", "hour", "holiday", "weekday", "workingday", "weather"),
            *("temp", "atemp", "humidity", "windspeed", "", "", "y"),
        ),
        header=True,
        title="UCI Bike Sharing: bicycles hired per hour, in time order; the counts of casual and registered riders, "
        "which sum to y, are left out",
        digest="b2ff6f7c721143af45f7e16526bd5666ee0d8a4f6e131649050946c0266bdf47",
    ),
    "covtype": Recipe(
        number=31,
        slug="covertype",
        files=("covtype.data",),
        columns=(
            *("Elevation", "Aspect", "Slope", "Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology"),
            *("Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm"),
            "Horizontal_Distance_To_Fire_Points",
            *_numbered("Wilderness_Area", 1, 4),
            *_numbered("Soil_Type", 1, 40),
            "y",
        ),
        text={"y": None},
        title="UCI Covertype: kind of forest on cells of 30 m × 30 m",
        licence="CC BY 4.0 (UCI; copyright Colorado State University)",
        digest="430bf3d219b96b35ee2d458ba39e4a7d36d0ebf8d709dcd6f693fecb9fe9bdcf",
    ),
    "landsat": Recipe(
        number=146,
        slug="statlog+landsat+satellite",
        files=("sat.trn", "sat.tst"),
        columns=(*_numbered("x", 0, 36), "y"),
        delimiter=None,
        text={"y": None},
        official=True,
        title="UCI Statlog Landsat Satellite: kind of soil from 3×3 pixels in four spectral bands",
        digest="d3b1849de959fbece05ba5224696d70546e73ba8efb0feae93dbb70830d05492",
    ),
    "naval": Recipe(
        number=316,
        slug="condition+based+maintenance+of+naval+propulsion+plants",
        files=("data.txt",),
        columns=(
            *("lever_position", "ship_speed", "gt_shaft_torque", "gt_rpm", "gg_rpm", "starboard_torque"),
            *("port_torque", "hp_turbine_exit_temp", "compressor_inlet_temp", "compressor_outlet_temp"),
            *("hp_turbine_exit_pressure", "compressor_inlet_pressure", "compressor_outlet_pressure"),
            *("exhaust_pressure", "turbine_injection_control", "fuel_flow", "y0", "y1"),
        ),
        delimiter=None,
        title="UCI Condition Based Maintenance of Naval Propulsion Plants, a simulator: decay of compressor (y0) and "
        "turbine (y1); two inputs are constant",
        digest="5f2890ebfd4487356ee51330d2363b2c85aebc01d5dbe210a36cdf86bc78895b",
    ),
    "optdigits": Recipe(
        number=80,
        slug="optical+recognition+of+handwritten+digits",
        files=("optdigits.tra", "optdigits.tes"),
        columns=(*_numbered("input", 1, 64), "y"),
        text={"y": None},
        official=True,
        title="UCI Optical Recognition of Handwritten Digits: images of 8×8 grey values from 0 to 16",
        digest="b0926bc63ea987157de0cce186c1b66ec2a0b99088cbf86f05b2189213c25736",
    ),
    "pendigits": Recipe(
        number=81,
        slug="pen+based+recognition+of+handwritten+digits",
        files=("pendigits.tra", "pendigits.tes"),
        columns=(*_numbered("input", 1, 16), "y"),
        text={"y": None},
        official=True,
        title="UCI Pen-Based Recognition of Handwritten Digits: eight points of a pen's path",
        digest="9153c581fd1db5d3ff6ffec3dc628d72bc7594e33ab889170722ad91d26c5f4f",
    ),
    "protein_raw": Recipe(
        number=265,
        slug="physicochemical+properties+of+protein+tertiary+structure",
        files=("CASP.csv",),
        columns=("y", *_numbered("F", 1, 9)),
        header=True,
        title="UCI Physicochemical Properties of Protein Tertiary Structure: deviation from the native structure in Å",
        digest="9665282c463c578747af152af7d2ea115e9b9609bbebd8791a2d44266eb2fb43",
    ),
    "sgemm": Recipe(
        number=440,
        slug="sgemm+gpu+kernel+performance",
        files=("sgemm_product.csv",),
        columns=(
            *("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "KWI", "VWM", "VWN", "STRM", "STRN", "SA", "SB"),
            *("y0", "y1", "y2", "y3"),
        ),
        header=True,
        title="UCI SGEMM GPU Kernel Performance: four run times in ms; the usual target is the log of their mean",
        digest="80b93b6f0bb793ae58a7c4247741dd01420f7b55829ba827657ab2607c573eb8",
    ),
    "spambase": Recipe(
        number=94,
        slug="spambase",
        files=("spambase.data",),
        columns=(*_numbered("x", 0, 57), "y"),
        text={"y": ("0", "1")},
        class_names=("ham", "spam"),
        title="UCI Spambase: unwanted e-mail from frequencies of words and characters",
        digest="b153f06812c3fa734b706b2a4ce0e3f94be3d31dc02e2aa1ccdb4b37f0ac4f8b",
    ),
    "wine_red": Recipe(
        number=186,
        slug="wine+quality",
        files=("winequality-red.csv",),
        columns=(*_WINE, "y"),
        delimiter=";",
        header=True,
        title="UCI Wine Quality, red wines: quality from 0 to 10 as a number",
        digest="78235ea941cdce0c85f33f54c9639059edf3e670bf180a89eed44e704a590a6d",
    ),
    "winequality": Recipe(
        number=186,
        slug="wine+quality",
        files=("winequality-red.csv", "winequality-white.csv"),
        columns=(*_WINE, "y_quality"),
        delimiter=";",
        header=True,
        derive=_winequality,
        class_names=_numbered("", 3, 7),
        title="UCI Wine Quality, red then white wines: quality as a class (y) or number (y_quality), colour (y_white)",
        digest="70401506ac3795208059d799340aba570aad9613dc265c8d303420d1b36c90a2",
    ),
    "yacht_raw": Recipe(
        number=243,
        slug="yacht+hydrodynamics",
        files=("yacht_hydrodynamics.data",),
        columns=("lcb", "prismatic_coef", "length_displacement", "beam_draught", "length_beam", "froude", "y"),
        delimiter=None,
        title="UCI Yacht Hydrodynamics: residuary resistance of a hull",
        digest="2145ae3c7c50495fb044cf8a7f6433109a91b25614e22c5c24e417112fb1aadd",
    ),
}
