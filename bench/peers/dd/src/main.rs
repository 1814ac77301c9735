//! Differential dataflow as a peer of live views: one view over a graph of edges and a collection of arguments.
//!
//! `wukongs-dd-peer VIEW`, VIEW one of hop, two-hops, paths, triangles. Standard input has changes, one a line, in
//! batches that end with a line `.`:
//!
//!     e+ SOURCE TARGET    e- SOURCE TARGET    an edge is inserted, deleted
//!     a+ NUMBER A B       a- NUMBER A B       an argument: its number, and two nodes (B counts for paths alone)
//!
//! Each batch is answered with one line: nanoseconds from its first update to the last row of its change, the rows of
//! the change, and the sum of their hashes times their weights. A batch is parsed before its time begins.

use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::rc::Rc;
use std::time::Instant;

use differential_dataflow::input::InputSession;
use differential_dataflow::VecCollection;
use timely::dataflow::operators::probe::Handle;

type Node = u32;
type Edge = (Node, Node);
type Argument = (Node, (Node, Node));
/// The number of an argument, and what was found for it.
type Row = (Node, i64);

#[derive(Default)]
struct Change {
    rows: u64,
    checksum: u64,
}

impl Change {
    fn add(&mut self, row: &Row, weight: isize) {
        self.rows += 1;
        self.checksum = self.checksum.wrapping_add(hash(row).wrapping_mul(weight as i64 as u64));
    }
}

fn hash(row: &Row) -> u64 {
    let mixed = (row.0 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (row.1 as u64).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// One batch of changes: edges and arguments, each with +1 or -1.
#[derive(Default)]
struct Batch {
    edges: Vec<(Edge, isize)>,
    arguments: Vec<(Argument, isize)>,
}

/// Read the next batch; None at the end of the input.
fn read(lines: &mut impl Iterator<Item = io::Result<String>>) -> Option<Batch> {
    let mut batch = Batch::default();
    for line in lines {
        let line = line.expect("standard input is text");
        if line == "." {
            return Some(batch);
        }
        let mut words = line.split(' ');
        let kind = words.next().expect("a line has a kind");
        let weight = if kind.ends_with('+') { 1 } else { -1 };
        let numbers: Vec<Node> = words.map(|word| word.parse().expect("a number")).collect();
        match (kind.as_bytes()[0], numbers.as_slice()) {
            (b'e', [source, target]) => batch.edges.push(((*source, *target), weight)),
            (b'a', [number, first, second]) => batch.arguments.push(((*number, (*first, *second)), weight)),
            _ => panic!("expected e+, e-, a+ or a- with numbers, found {line:?}"),
        }
    }
    None
}

/// Return the rows of a view.
fn rows<'scope>(
    view: &str,
    edges: VecCollection<'scope, u64, Edge>,
    arguments: VecCollection<'scope, u64, Argument>,
) -> VecCollection<'scope, u64, Row> {
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
        _ => panic!("expected hop, two-hops, paths or triangles, found {view:?}"),
    }
}

fn main() {
    let view = std::env::args().nth(1).expect("the name of a view");
    timely::execute_directly(move |worker| {
        let change = Rc::new(RefCell::new(Change::default()));
        let (noted, probe) = (change.clone(), Handle::new());
        let (mut edges, mut arguments) = (InputSession::new(), InputSession::new());
        worker.dataflow(|scope| {
            rows(&view, edges.to_collection(scope), arguments.to_collection(scope))
                .consolidate()
                .inspect(move |(row, _, weight)| noted.borrow_mut().add(row, *weight))
                .probe_with(&probe);
        });
        let mut lines = io::stdin().lock().lines();
        let mut output = io::stdout().lock();
        let mut time = 0;
        while let Some(batch) = read(&mut lines) {
            let began = Instant::now();
            for (edge, weight) in batch.edges {
                edges.update(edge, weight);
            }
            for (argument, weight) in batch.arguments {
                arguments.update(argument, weight);
            }
            time += 1;
            edges.advance_to(time);
            arguments.advance_to(time);
            edges.flush();
            arguments.flush();
            worker.step_while(|| probe.less_than(&time));
            let taken = began.elapsed().as_nanos();
            let Change { rows, checksum } = change.take();
            writeln!(output, "{taken} {rows} {checksum}").expect("standard output is read");
            output.flush().expect("standard output is read");
        }
    });
}
