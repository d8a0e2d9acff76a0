"""The recording of INT8 at the power limit: its products, and the table that notebook 13 makes of it."""

import importlib
import json
from pathlib import Path

from worklog import lab


def test_each_format_multiplies_by_the_same_b():
    import torch  # here: it takes 2 s of each process that collects the tests

    from tests.record.int8 import products

    made = products(32, "cpu")
    digits, columns = made["INT8"].args
    assert torch.equal(made["INT8"]().long(), digits.long() @ columns.long())
    right = made["FP32"].args[0].double() @ made["FP32"].args[1].double()
    for name, most in (("FP16", 0.02), ("FP32", 1e-5)):
        assert (made[name]().double() - right).abs().max() < most and made[name]().dtype == made[name].args[0].dtype


def test_the_table_compares_the_products_that_come_near_fp32(tmp_path, monkeypatch):
    recorded = dict[str, Path]()
    monkeypatch.setattr(
        importlib.import_module("worklog.lab.rungs"), "recordings", lambda part: recorded if part == "int8" else {}
    )
    us = {"INT8": 160.0, "FP16": 200.0, "FP32": 2400.0}
    rows = [
        {"format": name, "size": 4096, "in_a_row": {"us": time, "joules": 0.1, "watts": 699.6}}
        for name, time in us.items()
    ]
    recorded["h200"] = tmp_path / "h200.json"
    recorded["h200"].write_text(json.dumps({"label": "recorded · a card", "limit_watts": 700.0, "rows": rows}))
    table = lab.power_cap()
    assert table.title == "recorded · a card, power limit 700 W" and table.columns[3] == "W"
    assert [list(map(str, row[2:])) for row in table.rows] == [
        ["859", "700", "40.0 %"],
        ["687", "700", "25.0 %"],
        ["57", "700", "100.0 %"],
    ]
