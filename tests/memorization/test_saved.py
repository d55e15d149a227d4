"""Gaps from elsewhere: every format gives the same, and what is wrong with a file is said."""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

from memowidgets.memorization import load_gaps, log_lira
from tests.memorization.test_lira import made


@pytest.fixture
def arrays():
    gaps, members, target = made(m=8, n=12)
    ids = np.array([f"s{i:02d}" for i in range(12)])
    return {"gaps": gaps, "members": members, "target_gaps": target, "ids": ids}


def long_table(arrays):
    rows, columns = np.indices(arrays["gaps"].shape).reshape(2, -1)
    table = pd.DataFrame(
        {
            "model": rows,
            "sample": arrays["ids"][columns],
            "gap": arrays["gaps"].ravel(),
            "member": arrays["members"].ravel(),
            "target_gap": arrays["target_gaps"][columns],
        }
    )
    return table.sample(frac=1, random_state=0)


def save(kind, folder, arrays):
    path = folder / f"gaps.{kind}"
    if kind == "npz":
        np.savez(path, **arrays)
    elif kind == "safetensors":
        save_file({k: v for k, v in arrays.items() if k != "ids"}, path)
    else:
        long_table(arrays).to_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["npz", "safetensors", "parquet"])
def test_every_format_gives_the_same(kind, arrays, tmp_path):
    found = load_gaps(save(kind, tmp_path, arrays))
    np.testing.assert_array_equal(found.gaps, arrays["gaps"])
    np.testing.assert_array_equal(found.members, arrays["members"])
    np.testing.assert_array_equal(found.target_gaps, arrays["target_gaps"])
    if kind != "safetensors":
        assert found.ids.tolist() == arrays["ids"].tolist()
    gaps, members = found
    assert np.isfinite(log_lira(gaps, members, found.target_gaps, "shrunk")).all()


def test_two_numpy_files(arrays, tmp_path):
    np.save(tmp_path / "gaps.npy", arrays["gaps"])
    np.save(tmp_path / "keep.npy", arrays["members"])
    by_path = load_gaps(tmp_path / "gaps.npy", tmp_path / "keep.npy")
    by_array = load_gaps(str(tmp_path / "gaps.npy"), arrays["members"])
    with pytest.raises(ValueError, match="masked"):
        load_gaps(tmp_path / "gaps.npy", np.ma.masked_array(arrays["members"], mask=True))
    np.testing.assert_array_equal(by_path.members, by_array.members)
    assert by_path.target_gaps is None


def test_what_is_wrong_with_a_file(arrays, tmp_path):
    broken = arrays["gaps"].copy()
    broken[2, 3] = np.nan
    cases = [
        ({"members": arrays["members"].T}, ValueError, "same shape"),
        ({"members": None}, ValueError, "has no members: it must be called"),
        ({"gaps": broken}, ValueError, r"model \(row\) 2, sample \(column\) 3"),
        ({"members": arrays["members"] + 0.5}, TypeError, "must be bool"),
        ({"target_gaps": np.zeros(3)}, ValueError, "each of the 12 samples"),
        ({"ids": np.array(["a"])}, ValueError, "one for each of the 12 samples"),
    ]
    for change, error, sentence in cases:
        changed = {k: v for k, v in (arrays | change).items() if v is not None}
        np.savez(tmp_path / "changed.npz", **changed)
        with pytest.raises(error, match=sentence):
            load_gaps(tmp_path / "changed.npz")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: t.drop(columns="gap"), "lacks the columns gap"),
        (lambda t: t.iloc[1:], "but has 0 for model"),
        (lambda t: pd.concat([t, t.iloc[:1]]), "but has 2 for model"),
        (lambda t: t.assign(target_gap=np.arange(len(t))), "one target_gap a sample"),
    ],
)
def test_long_tables_must_be_complete(change, sentence, arrays, tmp_path):
    path = tmp_path / "gaps.parquet"
    change(long_table(arrays)).to_parquet(path)
    with pytest.raises(ValueError, match=sentence):
        load_gaps(path)


def test_no_pickle_is_ever_run(arrays, tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "gaps.pkl").write_bytes(b"")
    (tmp_path / "torn.npz").write_bytes(save("npz", tmp_path, arrays).read_bytes()[:100])
    (tmp_path / "torn.safetensors").write_bytes(b"123")
    (tmp_path / "torn.parquet").write_bytes(b"123")
    for name, sentence in {
        "objects.npy": "a pickle",
        "gaps.pkl": r"unknown suffix; valid are \.npy",
        "torn.npz": "is broken",
        "torn.safetensors": "is broken",
        "torn.parquet": "is broken",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            load_gaps(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        load_gaps(tmp_path / "nowhere.npz")


def test_a_mask_in_a_file_of_its_own(arrays, tmp_path):
    np.savez(tmp_path / "gaps.npz", gaps=arrays["gaps"])
    np.savez(tmp_path / "keep.npz", keep=arrays["members"])
    save_file({"mask": arrays["members"]}, tmp_path / "mask.safetensors")
    for mask in ("keep.npz", "mask.safetensors"):
        found = load_gaps(tmp_path / "gaps.npz", tmp_path / mask)
        np.testing.assert_array_equal(found.members, arrays["members"])
    np.savez(tmp_path / "other.npz", a=arrays["members"], b=arrays["members"])
    with pytest.raises(ValueError, match=r"no members.*has a, b"):
        load_gaps(tmp_path / "gaps.npz", tmp_path / "other.npz")
    with pytest.raises(ValueError, match="members must be an array or a"):
        load_gaps(tmp_path / "gaps.npz", tmp_path / "mask.csv")


def test_what_is_wrong_with_a_table_is_said(arrays, tmp_path):
    table = long_table(arrays)
    for column, value, said in (
        ("sample", None, "has no sample in row 0"),
        ("target_gap", np.nan, "has a target_gap that is NaN"),
    ):
        broken = table.copy()
        broken.loc[broken.index[0], column] = value
        broken.to_parquet(tmp_path / "gaps.parquet")
        with pytest.raises(ValueError, match=said):
            load_gaps(tmp_path / "gaps.parquet")
    np.savez(tmp_path / "twice.npz", **arrays | {"ids": np.array(["a"] * 12)})
    with pytest.raises(ValueError, match=r"ids of twice\.npz must be unique"):
        load_gaps(tmp_path / "twice.npz")


def test_bfloat16_is_named(arrays, tmp_path):
    gaps = torch.from_numpy(arrays["gaps"]).to(torch.bfloat16)
    save_tensors({"gaps": gaps}, tmp_path / "gaps.safetensors")
    with pytest.raises(ValueError, match=r"NumPy.*bfloat16.*float32"):
        load_gaps(tmp_path / "gaps.safetensors", arrays["members"])
