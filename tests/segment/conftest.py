import pytest
from tests.familiarity import small
from tests.segment.small import InProcess
from tests.slides.conftest import bucket, endpoint

from ntrm.core.io import sha256_of
from ntrm.slides import isolated

__all__ = ["bucket", "endpoint"]


@pytest.fixture(scope="module")
def quick_readers():
    """Slides read in this process: for tests of everything around the reading, since a process each takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolated, "ReadingProcess", InProcess)
        yield


@pytest.fixture(scope="module")
def by_colour():
    """The network ``by-colour`` can be loaded."""
    with pytest.MonkeyPatch.context() as patch:
        small.register(patch)
        yield


@pytest.fixture(scope="session")
def painted_model(tmp_path_factory):
    """A model's folder with a reference of painted sections; no test changes it."""
    folder, reference = tmp_path_factory.mktemp("model"), small.skin_reference()
    with pytest.MonkeyPatch.context() as patch:
        small.register(patch)
        small.make_network().save_pretrained(folder)
    reference.write(folder, sha256_of(folder / "model.safetensors"))
    return folder
