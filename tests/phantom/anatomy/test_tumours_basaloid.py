"""Basal cell carcinoma: where its nests lie and how they are parted."""

import numpy as np

from ntrm.data.stats import boundary_counts, boundary_share
from ntrm.phantom.anatomy.frame import BCC, INF
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.anatomy.tumours import _nest_depth
from ntrm.phantom.layout import paint_mask


def test_nests_lie_in_inflamed_stroma(seed):
    masks = [paint_mask(draw_plan(seed + i, "BCC"), 13.4) for i in range(6)]
    share = boundary_share(sum(boundary_counts(mask, 12) for mask in masks))[BCC]
    assert share.argmax() == INF
    assert share[INF] > 0.5


def test_clusters_lie_well_inside_the_specimen(seed):
    for number in range(seed, seed + 20):
        plan = draw_plan(number, "BCC")
        assert plan.lesions.clusters
        for cluster in plan.lesions.clusters:
            assert abs(cluster.u_um) < 0.8 * plan.specimen.half_um
            assert plan.specimen.top_um < cluster.v_um < max(0.5 * plan.specimen.depth_um, 2000.0)


def test_nests_fill_a_good_part_of_their_cluster_and_always_its_middle(seed):
    for number in range(seed, seed + 10):
        cluster = draw_plan(number, "BCC").lesions.clusters[0]
        y, x = np.mgrid[-1:1:61j, -1:1:61j].astype(np.float32)
        u, v = cluster.u_um + x.ravel() * cluster.half_width_um, cluster.v_um + y.ravel() * cluster.half_height_um
        still = np.zeros_like(u)
        inside = (_nest_depth(cluster, u, v, still, still) > 0).reshape(y.shape)
        assert 0.15 < inside.mean() < 1.0, f"seed {number}"
        assert inside[30, 30], f"seed {number}"
    assert _nest_depth(cluster, *(np.zeros(0, dtype=np.float32),) * 4).size == 0
