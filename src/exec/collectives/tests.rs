//! Tests of the collectives, with a thread per rank.

use crate::cpu::Collectives as _;
use std::net::TcpListener;
use std::time::Duration;

use super::*;
use crate::hip::{Rendezvous, World};

/// Runs a function on each rank. Returns its results in the order of the ranks.
fn on_ranks<T: Send>(ranks: usize, work: impl Fn(&Collectives) -> T + Sync) -> Vec<T> {
    let port = {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap().port()
    };
    let collectives = |rank: usize| {
        let find = |name: &str| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some(ranks.to_string()),
            "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
            "MASTER_PORT" => Some(port.to_string()),
            "TORCHELASTIC_RUN_ID" => Some(format!("collectives{port}")),
            _ => None,
        };
        let world = World::from_variables(find).unwrap().unwrap();
        let timeout = Duration::from_secs(60);
        let mesh = Mesh::join(Rendezvous::new(world, timeout).unwrap(), timeout).unwrap();
        Collectives::new(mesh).unwrap()
    };
    thread::scope(|scope| {
        let (work, collectives) = (&work, &collectives);
        let threads: Vec<_> = (0..ranks)
            .map(|rank| scope.spawn(move || work(&collectives(rank))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn exchange(id: u32, kind: ExchangeKind, ranks: usize, bf16_wire: bool) -> Exchange {
    Exchange {
        id,
        kind,
        ranks,
        conditional: false,
        f32_tensors: true,
        bf16_wire,
    }
}

/// Elements of a rank, with sums that depend on their order.
fn elements(rank: usize, len: usize) -> Vec<f32> {
    let element = |i: usize| (((i * 7 + rank * 13) % 101) as f32 - 50.0) * 10f32.powi((rank % 3) as i32 * 3);
    (0..len)
        .map(|i| element(i) + 1.0 / (1 + i + rank) as f32)
        .collect()
}

/// Returns the sums of the elements of these ranks, in this order.
fn sums(ranks: impl IntoIterator<Item = usize>, len: usize) -> Vec<f32> {
    let mut ranks = ranks.into_iter().map(|rank| elements(rank, len));
    let first = ranks.next().unwrap();
    ranks.fold(first, |sum, rank| {
        sum.iter().zip(rank).map(|(a, b)| a + b).collect()
    })
}

#[test]
fn sums_have_the_bits_of_additions_in_the_order_of_the_ranks() {
    for ranks in [1, 2, 3, 5] {
        // No multiple of the number of ranks, and fewer elements than ranks.
        for len in [1003, 2] {
            let all = on_ranks(ranks, |collectives| {
                let own = elements(collectives.rank(), len);
                collectives.start(exchange(3, ExchangeKind::Sum, ranks, false), own);
                collectives.finish(3).unwrap()
            });
            for sum in all {
                assert_eq!(sum, sums(0..ranks, len));
            }
        }
    }
}

#[test]
fn parts_are_summed_and_gathered() {
    let all = on_ranks(4, |collectives| {
        let own = elements(collectives.rank(), 12);
        // Two exchanges at once, which end in the other order.
        collectives.start(exchange(0, ExchangeKind::Scatter, 4, false), own.clone());
        collectives.start(exchange(1, ExchangeKind::Gather, 4, false), own);
        let gathered = collectives.finish(1).unwrap();
        (collectives.finish(0).unwrap(), gathered)
    });
    let expected: Vec<f32> = (0..4).flat_map(|rank| elements(rank, 12)).collect();
    let sums = sums(0..4, 12);
    for (rank, (part, gathered)) in all.into_iter().enumerate() {
        assert_eq!(part, sums[3 * rank..3 * rank + 3]);
        assert_eq!(gathered, expected);
    }
}

#[test]
fn groups_divide_and_have_copies() {
    let all = on_ranks(4, |collectives| {
        let own = elements(collectives.rank(), 8);
        for (id, kind) in [(0, ExchangeKind::Sum), (1, ExchangeKind::Scatter)] {
            collectives.start(exchange(id, kind, 2, false), own.clone());
        }
        let part = collectives.finish(1).unwrap();
        collectives.start(exchange(2, ExchangeKind::Gather, 2, false), part.clone());
        (
            collectives.finish(0).unwrap(),
            part,
            collectives.finish(2).unwrap(),
        )
    });
    let [first, second] = [sums([0, 1], 8), sums([2, 3], 8)];
    let expected: Vec<f32> = first.iter().zip(second).map(|(a, b)| a + b).collect();
    for (rank, (sum, part, gathered)) in all.into_iter().enumerate() {
        assert_eq!(sum, expected);
        assert_eq!(part, expected[4 * (rank % 2)..][..4]);
        assert_eq!(gathered, expected);
    }
}

#[test]
fn elements_are_rounded_for_the_wire_and_equal_at_all_ranks() {
    let all = on_ranks(3, |collectives| {
        let own = elements(collectives.rank(), 100);
        collectives.start(exchange(0, ExchangeKind::Sum, 3, true), own);
        collectives.finish(0).unwrap()
    });
    let magnitudes: Vec<f32> = (0..100)
        .map(|i| (0..3).map(|rank| elements(rank, 100)[i].abs()).sum())
        .collect();
    let exact = sums(0..3, 100);
    for sum in &all {
        assert_eq!(sum, &all[0]);
        for ((sum, exact), magnitude) in sum.iter().zip(&exact).zip(&magnitudes) {
            // Each operand and the sum are rounded to 8 bits.
            assert!(
                (sum - exact).abs() <= magnitude * 2.0 / 256.0,
                "{sum}, exactly {exact}"
            );
        }
    }
    assert_ne!(all[0], exact);
}

#[test]
fn a_failure_ends_the_exchanges_of_the_others() {
    let texts = on_ranks(3, |collectives| {
        if collectives.rank() == 1 {
            collectives.fail("rank 1 of 3: the disk is full");
            return None;
        }
        collectives.start(exchange(0, ExchangeKind::Sum, 3, false), vec![1.0; 3]);
        collectives.finish(0).unwrap_err();
        let error = collectives.failure().unwrap().to_string();
        assert!(collectives.gather(Vec::new()).is_err());
        Some(error)
    });
    for text in texts.into_iter().flatten() {
        assert!(text.contains("rank 1 of 3: the disk is full"), "{text}");
    }
}
