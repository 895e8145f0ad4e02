"""Where the known data sets come from that cannot be downloaded as they are."""

from __future__ import annotations

__all__ = ["ORIGINS"]

_COLLECTION = (
    "the regression collection treforevans/uci_datasets on GitHub (columns centred, some targets logarithms; "
    "originally UCI, DELVE and L. Torgo)"
)
_COLLECTED = (
    *("3droad", "autompg", "autos", "bike", "breastcancer", "buzz", "challenger", "concrete", "concreteslump"),
    *("elevators", "energy", "fertility", "forest", "housing", "keggdirected", "keggundirected", "kin40k", "machine"),
    *("pol", "protein", "servo", "slice", "song", "tamielectric", "wine", "yacht"),
)

ORIGINS: dict[str, str] = dict.fromkeys(_COLLECTED, _COLLECTION) | {
    "argo2016": "the data of the R package GpGp (Argo floats, ocean temperatures, January to March 2016)",
    "banana": "the KEEL repository (Rätsch's banana benchmark)",
    "bank": "UCI data set 222, Bank Marketing (bank-additional-full.csv)",
    "cal_housing": "StatLib, California housing",
    "cardiotocography": "UCI data set 193, Cardiotocography (a spreadsheet)",
    "chess": "UCI data set 22, Chess (King-Rook vs. King-Pawn)",
    "diamonds": "the data of the R package ggplot2",
    "electricity": "Harries 1999, electricity market of New South Wales (ELEC2)",
    "energy2": "UCI data set 242, Energy Efficiency (a spreadsheet)",
    "fars": "the KEEL repository (US fatal accident reports 2001)",
    "flights2024": "the US Bureau of Transportation Statistics, on-time data of January 2024",
    "higgs_11k": "UCI data set 280, HIGGS (a sample of it)",
    "house8L": "DELVE, census-house 8L",
    "houseelectric": "UCI data set 235, Individual Household Electric Power Consumption",
    "jason3": "the data of the R package GpGp (wind speed from the satellite Jason-3, August 2016)",
    "jura": "Goovaerts 1997, heavy metals in the Swiss Jura (in the multi-target collection tsoumakas/mulan on GitHub)",
    "kin8nm": "DELVE, kin family",
    "krkopt": "UCI data set 23, Chess (King-Rook vs. King)",
    "modis_lst": "finnlindgren/heatoncomparison on GitHub (MODIS land surface temperature, 4 August 2016)",
    "mushroom": "UCI data set 73, Mushroom",
    "musk2": "UCI data set 75, Musk (Version 2)",
    "nursery": "UCI data set 76, Nursery",
    "nycflights13": "the data of the R package nycflights13",
    "pageblocks": "UCI data set 78, Page Blocks Classification",
    "powerplant": "UCI data set 294, Combined Cycle Power Plant (a spreadsheet)",
    "sarcos_test": "the book Gaussian Processes for Machine Learning (SARCOS arm, test part)",
    "shuttle": "UCI data set 148, Statlog (Shuttle)",
    "skin": "UCI data set 229, Skin Segmentation",
    "splice": "UCI data set 69, Molecular Biology (Splice-junction Gene Sequences)",
    "thyroid": "UCI data set 102, Thyroid Disease (ann-train.data and ann-test.data)",
    "titanic": "the KEEL repository (Titanic, 2201 people)",
    "ujiindoorloc": "UCI data set 310, UJIIndoorLoc",
    "usps": "the book Gaussian Processes for Machine Learning (USPS digits, resampled split)",
}
