import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.broken import sound_plain

from ntrm.core.errors import DataError
from ntrm.data.check import Measurement, check_dataset, check_measurements, read_measurements

HEADER = "name,clearance_um,depth_um,reader,note\n"


@pytest.fixture
def folder(tmp_path):
    return sound_plain(tmp_path)


def write(folder, rows, header=HEADER):
    (folder / "measurements.csv").write_text(header + rows)


def test_no_file_no_measurements(folder):
    assert read_measurements(folder) == {}


def test_several_readers_and_empty_cells(folder):
    write(folder, "a,120.5,80,anna,\na,130,,ben,folded\nb,,0,,\n")
    assert read_measurements(folder) == {
        "a": (Measurement(120.5, 80.0, "anna"), Measurement(130.0, None, "ben", "folded")),
        "b": (Measurement(None, 0.0),),
    }
    assert check_dataset(folder).measurements == 2


def test_reader_and_note_are_optional(folder):
    write(folder, "a,1,2\n", header="name,clearance_um,depth_um\n")
    assert read_measurements(folder) == {"a": (Measurement(1.0, 2.0),)}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,-1,,,", "negative clearance_um"),
        ("a,,nan,,", "not a number"),
        ("a,inf,,,", "not a number"),
        ("a,far,,,", "not a number"),
        ("a,,,,", "nothing measured"),
        ("c,1,1,,", "unknown section"),
        ("a,1,1,anna,\na,2,1,anna,", "a second row of one reader"),
    ],
)
def test_bad_rows(folder, row, message):
    write(folder, f"b,1,1,,\n{row}\n")
    with pytest.raises(DataError, match=message):
        read_measurements(folder)
    report = check_dataset(folder)
    assert [(finding.code, finding.file) for finding in report.faults] == [("bad-measurements", "measurements.csv")]
    assert message in report.faults[0].found


def test_a_missing_column_is_named(folder):
    write(folder, "a,1\n", header="name,clearance_um\n")
    with pytest.raises(DataError, match="columns name,clearance_um,depth_um"):
        read_measurements(folder)


def test_every_bad_row_is_counted_and_the_sound_ones_kept(folder):
    write(folder, "a,-1,,,\nb,5,,,\nz,1,,,\n")
    measurements, faults = check_measurements(folder, {"a", "b"})
    assert measurements == {"b": (Measurement(5.0, None),)}
    assert len(faults) == 2


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=5))
def test_numbers_come_back_as_written(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("measured")
    write(folder, "".join(f"a,{value!r},,reader {i},\n" for i, value in enumerate(values)))
    read = read_measurements(folder, names={"a"})
    assert [measurement.clearance_um for measurement in read["a"]] == values
