"""The paper's tables, figures and claims again, and the ablation it leaves out: plan → runs → one page."""
