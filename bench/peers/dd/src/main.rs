//! Differential dataflow as a peer of live views and rules: views over a graph of edges and a second relation.
//!
//! `wukongs-dd-peer VIEW,...`, VIEW one of those that views.rs has. Standard input has changes, one a line, in
//! batches that end with a line `.`:
//!
//!     e+ SOURCE TARGET    e- SOURCE TARGET    an edge is inserted, deleted
//!     a+ NUMBER A B       a- NUMBER A B       of the second relation: an argument, its number, and two nodes
//!
//! Each batch is answered with one line: nanoseconds from its first update to the last row of its change, then for each
//! view the rows of the change, and the sum of their hashes times their weights. A batch is parsed before its time
//! begins.

mod views;

use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::rc::Rc;
use std::time::Instant;

use differential_dataflow::input::InputSession;
use timely::dataflow::operators::probe::Handle;

use views::{rows, Argument, Edge, Node, Row};

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

fn main() {
    let names = std::env::args().nth(1).expect("the names of views");
    timely::execute_directly(move |worker| {
        let (mut changes, probe) = (Vec::new(), Handle::new());
        let (mut edges, mut arguments) = (InputSession::new(), InputSession::new());
        worker.dataflow(|scope| {
            let (edges, arguments) = (edges.to_collection(scope), arguments.to_collection(scope));
            for name in names.split(',') {
                let change = Rc::new(RefCell::new(Change::default()));
                let noted = change.clone();
                changes.push(change);
                rows(name, edges.clone(), arguments.clone())
                    .consolidate()
                    .inspect(move |(row, _, weight)| noted.borrow_mut().add(row, *weight))
                    .probe_with(&probe);
            }
        });
        let mut lines = io::stdin().lock().lines();
        let mut output = io::stdout().lock();
        let mut time = 0u64;
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
            write!(output, "{taken}").expect("standard output is read");
            for change in &changes {
                let Change { rows, checksum } = change.take();
                write!(output, " {rows} {checksum}").expect("standard output is read");
            }
            writeln!(output).expect("standard output is read");
            output.flush().expect("standard output is read");
        }
    });
}
