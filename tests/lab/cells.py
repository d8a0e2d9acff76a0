"""Cells of CUDA C++ as a person types them: right, wrong, racy, and one that takes long."""

from __future__ import annotations

from tests import helpers

CELL = "%%rung mine\n" + helpers.PLAIN.replace("mine(", "plain(")
WRONG = CELL.replace("col >= N", "col >= N - 1")
SLIP = CELL.replace("float acc = 0.0f;", "float acc = 0.0f")
SLOW = CELL.replace("for (int k = 0; k < K; ++k)", "for (int r = 0; r < 100000; ++r) for (int k = 0; k < K; ++k)")
OF_TILES = "%%rung --block 8,8 --domain 'M % 8 == 0, N % 8 == 0, K % 8 == 0'\n"
RACY = OF_TILES + helpers.RACY.replace("mine(", "racy(")
