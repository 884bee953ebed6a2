from tests.pipeline.conftest import quick_readers

__all__ = ["quick_readers"]
