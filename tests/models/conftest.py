from tests.models.shallow import shallow

__all__ = ["shallow"]
