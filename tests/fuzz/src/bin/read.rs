//! Reads one input of one shape: `read SHAPE BYTES`, with the number of the shape. Its instructions are counted from outside.
#![allow(clippy::unwrap_used, reason = "a target fails by panicking")]

use agent_fuzz::{shapes, targets};

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|text| text.parse().unwrap()).collect();
    let shapes = shapes();
    let shape = &shapes[numbers[0]];
    let target = targets().into_iter().find(|target| target.name == shape.target).unwrap();
    target.check(&shape.input(numbers[1]));
}
