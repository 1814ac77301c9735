//! The views: neighbours, two hops, triangles and paths of at most 4 edges of arguments; closures of the edges, what is
//! reached from pairs of the second relation, same generation, and two analyses of programs.

use differential_dataflow::operators::iterate::{Iterate, VecVariable};
use differential_dataflow::VecCollection;
use timely::order::Product;

pub type Node = u32;
pub type Edge = (Node, Node);
pub type Argument = (Node, (Node, Node));
/// The number of an argument, or a node, and what was found for it.
pub type Row = (Node, i64);

/// Return the rows of a view.
pub fn rows<'scope>(
    view: &str,
    edges: VecCollection<'scope, u64, Edge>,
    arguments: VecCollection<'scope, u64, Argument>,
) -> VecCollection<'scope, u64, Row> {
    match view {
        "tc" => return closure(edges.clone(), edges).map(row),
        "reached" => return closure(arguments.map(|(_, pair)| pair), edges).map(row),
        "sg" => return same_generation(edges).map(row),
        "points-to" => return points_to(edges, arguments.map(|(_, dereference)| dereference)),
        _ => {}
    }
    let forward = edges.clone().arrange_by_key();
    let starts = arguments.clone().map(|(number, (first, _))| (first, number));
    let hop = starts.join_core(forward.clone(), |_, number, next| Some((*next, *number)));
    if view == "hop" {
        return hop.map(|(node, number)| (number, node as i64));
    }
    let two_hops = hop.clone().join_core(forward, |_, number, next| Some((*next, *number)));
    match view {
        "two-hops" => two_hops.map(|(node, number)| (number, node as i64)),
        "triangles" => {
            let ends = arguments.map(|(number, (first, _))| (number, first));
            two_hops
                .map(|(node, number)| (number, node))
                .join_map(ends, |number, node, end| ((*node, *end), *number))
                .join_core(edges.arrange_by_self(), |_, number, _| Some(*number))
                .count()
                .map(|(number, count)| (number, count as i64))
        }
        "paths" => {
            let backward = edges.map(|(source, target)| (target, source)).arrange_by_key();
            let ends = arguments.map(|(number, (_, second))| (second, number));
            let back = ends.clone().join_core(backward.clone(), |_, number, next| Some((*next, *number)));
            let two_back = back.clone().join_core(backward, |_, number, next| Some((*next, *number)));
            let reached = hop.concat(two_hops).distinct();
            ends.concat(back)
                .concat(two_back)
                .distinct()
                .arrange_by_self()
                .join_core(reached.arrange_by_self(), |(_, number), _, _| Some(*number))
                .distinct()
                .map(|number| (number, 1))
        }
        _ => panic!("expected a view that views.rs has, found {view:?}"),
    }
}

fn row((first, second): Edge) -> Row {
    (first, second as i64)
}

/// Return the pairs, and those of their first node with all nodes to which edges lead from the second one.
fn closure<'scope>(
    pairs: VecCollection<'scope, u64, Edge>,
    edges: VecCollection<'scope, u64, Edge>,
) -> VecCollection<'scope, u64, Edge> {
    let edges = edges.arrange_by_key();
    let pairs = pairs.map(|(first, second)| (second, first));
    pairs
        .clone()
        .iterate(|scope, reached| {
            reached
                .join_core(edges.enter(scope), |_, first, next| Some((*next, *first)))
                .concat(pairs.enter(scope))
                .distinct()
        })
        .map(|(second, first)| (first, second))
}

/// Return the pairs of nodes with a common ancestor, as many edges above the one as above the other.
fn same_generation<'scope>(edges: VecCollection<'scope, u64, Edge>) -> VecCollection<'scope, u64, Edge> {
    let edges = edges.arrange_by_key();
    let siblings = edges.clone().join_core(edges.clone(), |_, one, other| Some((*one, *other))).distinct();
    siblings.clone().iterate(|scope, pairs| {
        let edges = edges.enter(scope);
        pairs
            .join_core(edges.clone(), |_, other, below| Some((*other, *below)))
            .join_core(edges, |_, one, below| Some((*one, *below)))
            .concat(siblings.enter(scope))
            .distinct()
    })
}

/// Return value flows (x, y), and memory aliases (x, y + 2^32), of assignments and dereferences: Graspan's points-to
/// analysis without a relation of value aliases.
///
/// A value flows from x to x; from x to y if it flows to z and z is assigned to y, or to a w whose memory alias y is.
/// What points to x are the values v that flow to a node with the dereference x. x and y are memory aliases if one v
/// points to both, or two memory aliases do.
fn points_to<'scope>(
    assignments: VecCollection<'scope, u64, Edge>,
    dereferences: VecCollection<'scope, u64, Edge>,
) -> VecCollection<'scope, u64, Row> {
    let scope = assignments.scope();
    let nodes = assignments
        .clone()
        .concat(dereferences.clone())
        .flat_map(|(one, other)| [one, other])
        .distinct()
        .map(|node| (node, node));
    scope.iterative::<u64, _, _>(|inner| {
        let (nodes, assignments) = (nodes.enter(inner), assignments.enter(inner));
        let dereferences = dereferences.enter(inner).arrange_by_key();
        let (flow_variable, flows) = VecVariable::new(inner, Product::new(Default::default(), 1));
        let (alias_variable, aliases) = VecVariable::new(inner, Product::new(Default::default(), 1));
        let aliases = aliases.arrange_by_key();
        let steps = assignments
            .clone()
            .map(|(from, to): Edge| (to, from))
            .join_core(aliases.clone(), |_, from, to: &Node| Some((*from, *to)))
            .concat(assignments);
        // Flows are kept by their end, since they grow there.
        let flows = flows.arrange_by_key();
        let new_flows = flows
            .clone()
            .join_core(steps.arrange_by_key(), |_, from: &Node, to| Some((*to, *from)))
            .concat(nodes)
            .distinct();
        let pointers = flows.join_core(dereferences, |_, from, memory| Some((*from, *memory))).distinct().arrange_by_key();
        let through = pointers
            .clone()
            .join_core(aliases, |_, one, other| Some((*other, *one)))
            .join_core(pointers.clone(), |_, one, other| Some((*one, *other)));
        let new_aliases = pointers
            .clone()
            .join_core(pointers, |_, one, other| Some((*one, *other)))
            .concat(through)
            .distinct();
        flow_variable.set(new_flows.clone());
        alias_variable.set(new_aliases.clone());
        new_flows
            .map(|(to, from)| (from, to as i64))
            .concat(new_aliases.map(|(one, other)| (one, other as i64 + (1 << 32))))
            .leave(scope)
    })
}
