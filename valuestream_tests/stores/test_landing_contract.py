"""What every landing place promises (M2, M6): listing, pinned reading, and nobody is handed a mixture of two objects."""

from __future__ import annotations

import pytest

from valuestream_dagster.errors import ObjectChanged, ObjectMissing, StoreFailure
from valuestream_dagster.stores.base import ObjectStat
from valuestream_tests.stores.conftest import Place


def _only(place: Place) -> ObjectStat:
    (stat,) = place.landing.list()
    return stat


class TestEveryLandingPlace:
    def test_a_place_where_nothing_was_ever_put_lists_as_nothing(self, place: Place) -> None:
        assert place.landing.list() == []

    def test_a_listing_holds_every_depth_sorted_by_path(self, place: Place) -> None:
        for path in ("b/2.csv", "a.csv", "b/c/d/3.csv", "b.csv"):
            place.put(path, path.encode())
        listed = place.landing.list()
        assert [stat.path for stat in listed] == sorted(["a.csv", "b.csv", "b/2.csv", "b/c/d/3.csv"])
        assert [stat.bytes for stat in listed] == [len(stat.path) for stat in listed]
        assert all(stat.modified_at is not None and stat.modified_at.tzinfo is not None for stat in listed)

    def test_a_name_beside_ascii_comes_back_as_it_was_put(self, place: Place) -> None:
        place.put("été 2026/cafe\u0301 + 50%.csv", b"x")
        stat = _only(place)
        assert stat.path == "été 2026/cafe\u0301 + 50%.csv"
        assert place.landing.read(stat, 10) == b"x"

    def test_an_untouched_object_keeps_its_stamp_and_an_overwritten_one_does_not(self, place: Place) -> None:
        place.put("a.csv", b"one")
        first = _only(place)
        assert _only(place).stamp == first.stamp
        place.put("a.csv", b"two")
        assert _only(place).stamp != first.stamp

    def test_head_tells_the_stamp_of_the_listing_and_none_for_what_is_not_there(self, place: Place) -> None:
        place.put("a/b.csv", b"one")
        found = place.landing.head("a/b.csv")
        assert found is not None
        assert (found.stamp, found.bytes) == (_only(place).stamp, 3)
        assert place.landing.head("a/c.csv") is None
        assert place.landing.head("a") is None

    @pytest.mark.parametrize("data", [b"", b"x", b"y" * 100_000])
    def test_reading_gives_all_the_bytes(self, place: Place, data: bytes) -> None:
        place.put("a.bin", data)
        assert place.landing.read(_only(place), len(data)) == data

    def test_more_bytes_than_the_limit_are_refused_by_name(self, place: Place) -> None:
        place.put("a.bin", b"12345")
        with pytest.raises(StoreFailure, match=r"a\.bin is 5 bytes, more than the limit of 4"):
            place.landing.read(_only(place), 4)

    def test_an_object_overwritten_since_the_listing_is_not_read(self, place: Place) -> None:
        place.put("a.csv", b"one")
        seen = _only(place)
        place.put("a.csv", b"two")
        with pytest.raises(ObjectChanged, match="changed"):
            place.landing.read(seen, 100)

    def test_an_object_overwritten_while_it_is_read_is_never_mixed(self, place: Place) -> None:
        old, new = b"o" * 300_000, b"n" * 300_000
        place.put("a.bin", old)
        buffer = memoryview(bytearray(1000))
        data = b""
        try:
            with place.landing.open(_only(place)) as opened:
                data += bytes(buffer[: opened.readinto(buffer)])
                place.put("a.bin", new)
                while count := opened.readinto(buffer):
                    data += bytes(buffer[:count])
                opened.confirm()
        except ObjectChanged:
            return
        assert data == old

    def test_an_object_taken_away_since_the_listing_is_missing(self, place: Place) -> None:
        place.put("a.csv", b"one")
        seen = _only(place)
        place.take_away("a.csv")
        with pytest.raises(ObjectMissing, match=r"a\.csv"):
            place.landing.read(seen, 100)

    def test_an_address_names_the_object(self, place: Place) -> None:
        assert place.landing.uri("a/b.csv").endswith("/a/b.csv")
        assert place.landing.uri("a/b.csv").startswith(("file:///", "s3://bucket-"))
