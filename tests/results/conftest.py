from tests.report.conftest import results

__all__ = ["results"]
