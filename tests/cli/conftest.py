from tests.segment.conftest import quick_readers

__all__ = ["quick_readers"]
