//! Tests of the mesh, with a thread per rank.

use super::*;

/// Runs a function on each rank of a mesh.
fn on_ranks<T: Send + 'static>(size: usize, timeout: Duration, work: fn(Mesh) -> T) -> Vec<T> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let world = move |rank: usize| {
        let find = |name: &str| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some(size.to_string()),
            "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
            "MASTER_PORT" => Some(port.to_string()),
            "TORCHELASTIC_RUN_ID" => Some(format!("mesh{port}")),
            _ => None,
        };
        World::from_variables(find).unwrap().unwrap()
    };
    let threads: Vec<_> = (0..size)
        .map(|rank| {
            thread::spawn(move || {
                let rendezvous = Rendezvous::new(world(rank), Duration::from_secs(60)).unwrap();
                work(Mesh::join(rendezvous, timeout).unwrap())
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn every_rank_reaches_every_other_one() {
    let received = on_ranks(4, LONG, |mesh| {
        let own = mesh.world().rank();
        // More than any socket buffers: no rank receives before all have sent.
        for other in (0..4).filter(|&other| other != own) {
            mesh.send(other, vec![own as u8; 3 << 20]).unwrap();
            mesh.send(other, vec![other as u8]).unwrap();
        }
        for other in (0..4).filter(|&other| other != own) {
            assert!(mesh.receive(other).unwrap() == vec![other as u8; 3 << 20]);
            assert_eq!(mesh.receive(other).unwrap(), [own as u8]);
        }
        assert!(mesh.send(own, Vec::new()).is_err());
        assert!(mesh.send(4, Vec::new()).is_err());
        mesh.world().size()
    });
    assert_eq!(received, [4; 4]);
}

#[test]
fn a_rank_that_ends_is_named_and_its_last_message_arrives() {
    let texts = on_ranks(3, LONG, |mesh| {
        let own = mesh.world().rank();
        if own == 2 {
            mesh.send(0, vec![7]).unwrap();
            mesh.send(1, vec![7]).unwrap();
            return String::new();
        }
        assert_eq!(mesh.receive(2).unwrap(), [7]);
        mesh.receive(2).unwrap_err().to_string()
    });
    for (rank, text) in texts[..2].iter().enumerate() {
        assert!(text.starts_with(&format!("rank {rank} of 3: ")), "{text}");
        assert!(
            text.ends_with("rank 2 has ended: its connection was closed"),
            "{text}"
        );
    }
}

#[test]
fn a_failure_reaches_all_ranks_with_its_reason() {
    let texts = on_ranks(3, LONG, |mesh| {
        if mesh.world().rank() == 1 {
            mesh.fail("rank 1 of 3: the disk is full");
            return String::new();
        }
        mesh.receive(1).unwrap_err().to_string()
    });
    for text in [&texts[0], &texts[2]] {
        assert!(text.ends_with("rank 1 of 3: the disk is full"), "{text}");
    }
}

#[test]
fn a_silent_rank_is_an_error_after_the_timeout() {
    let texts = on_ranks(2, Duration::from_millis(300), |mesh| {
        if mesh.world().rank() == 1 {
            thread::sleep(Duration::from_secs(1));
            return String::new();
        }
        mesh.receive(1).unwrap_err().to_string()
    });
    assert!(
        texts[0].ends_with("rank 1 has sent nothing for 0.3 s"),
        "{texts:?}"
    );
}
