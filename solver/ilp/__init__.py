r"""Integer linear programming: the reference for small problems, readable beside the one that was published.

Zero Bubble Pipeline Parallelism (Qi et al., arXiv 2401.10241), appendix G, minimises over end times E and order
binaries O, with T the durations. Its B is our I, and an op of it is (stage i, micro-batch j, kind c).

==============================================================  ===========================================
the paper's line                                                ours, in `constraints`
==============================================================  ===========================================
min max_i E(i,m,W) - E(i,1,F) + T(i,1,F)                        `span`; and `makespan`
E(i,j,F) >= E(i-1,j,F) + T_comm + T(i,j,F)                      `data_flow`
E(i,j,B) >= E(i+1,j,B) + T_comm + T(i,j,B)                      `data_flow`; also own F before I, I before W
E(i,j,c) >= E(i,j',c') + T(i,j,c) - inf O[(i,j,c) -> (i,j',c')]  `one_op_at_a_time`
M_limit >= dM(i,j',c') + sum of dM(i,j,c) O[(i,j,c) -> (i,j',c')]  `within_memory`; static memory is in the limit
micro-batches in order (their code: F, B and W each)            `first_in_first_out`, where it is without loss
==============================================================  ===========================================

Differences: variables are starts, not ends; "inf" is the least constant that does it; a rank may hold several stages;
a backward may be fused, where that can be better; a pair whose order is known has no binary (`Sets`). Further lines:
`order_is_transitive` and `work_before_and_after` tighten; `moments` keeps ops of no duration in an order that can be
run; `first_ops_at_once` and `forwards_at_once` make the span that of the simulator, where every op starts as early as
it can.
"""

from .search import solve_ilp

__all__ = ["solve_ilp"]
