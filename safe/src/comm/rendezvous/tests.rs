//! Tests of the rendezvous, with strangers at rank 0's port.

use std::io::{Read as _, Write as _};
use std::sync::Mutex;

use super::*;

/// Returns rank `rank` of `size` at a free port.
fn world(rank: usize, size: usize, port: u16, run: &str) -> World {
    let find = |name: &str| match name {
        "RANK" => Some(rank.to_string()),
        "WORLD_SIZE" => Some(size.to_string()),
        "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
        "MASTER_PORT" => Some(port.to_string()),
        // Keeps tests at neighbouring ports apart.
        "TORCHELASTIC_RUN_ID" => Some(format!("{run}{port}")),
        _ => None,
    };
    World::from_variables(find).unwrap().unwrap()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Runs these ranks, each on a thread. Returns what each gathered, or its error.
fn run(worlds: Vec<World>, timeout: Duration) -> Vec<Result<Vec<Vec<u8>>, String>> {
    let threads: Vec<_> = worlds
        .into_iter()
        .map(|world| {
            thread::spawn(move || {
                let own = [world.rank() as u8; 3];
                let mut rendezvous = Rendezvous::new(world, timeout)?;
                rendezvous.gather(&own)
            })
        })
        .collect();
    let joined = threads.into_iter().map(|thread| thread.join().unwrap());
    joined
        .map(|result| result.map_err(|error| error.to_string()))
        .collect()
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn all_ranks_get_what_each_gave() {
    let port = free_port();
    // Rank 0 starts last, so that the others retry.
    let worlds = [3, 2, 1, 0].map(|rank| world(rank, 4, port, "a")).into();
    let expected: Vec<Vec<u8>> = (0..4).map(|rank| vec![rank; 3]).collect();
    for gathered in run(worlds, LONG) {
        assert_eq!(gathered, Ok(expected.clone()));
    }
}

#[test]
fn connections_go_from_rank_0_to_each_other_rank() {
    let port = free_port();
    let threads = [0, 1, 2].map(|rank| {
        thread::spawn(move || {
            let mut rendezvous = Rendezvous::new(world(rank, 3, port, "a"), LONG).unwrap();
            rendezvous.gather(&[1]).unwrap();
            match rendezvous.into_connections() {
                Connections::Leaf(mut root) => {
                    root.send(&(rank, vec![0.5f32; 1000])).unwrap();
                    vec![(root.peer(), root.receive::<usize>(LONG).unwrap())]
                }
                Connections::Root(others) => {
                    let answer = |mut other: Connection| {
                        let (rank, values): (usize, Vec<f32>) = other.receive(LONG).unwrap();
                        assert_eq!(values, [0.5; 1000]);
                        other.send(&(10 * rank)).unwrap();
                        (other.peer(), rank)
                    };
                    others.into_iter().map(answer).collect()
                }
            }
        })
    });
    let results = threads.map(|thread| thread.join().unwrap());
    assert_eq!(results, [vec![(1, 1), (2, 2)], vec![(0, 10)], vec![(0, 20)]]);
}

#[test]
fn two_runs_with_one_port_do_not_disturb_each_other() {
    let port = free_port();
    let worlds = |run: &'static str| [0, 1].map(|rank| world(rank, 2, port, run));
    let worlds = [worlds("a"), worlds("b")].concat();
    for gathered in run(worlds, LONG) {
        assert_eq!(gathered.map(|parts| parts.len()), Ok(2));
    }
}

#[test]
fn stray_connections_are_ignored() {
    let port = free_port();
    let root = thread::spawn(move || run(vec![world(0, 2, port, "a")], LONG).remove(0));
    let strays: Vec<TcpStream> = ["", "GET / HTTP/1.1\r\n\r\n"]
        .iter()
        .map(|text| {
            loop {
                if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                    stream.write_all(text.as_bytes()).unwrap();
                    break stream;
                }
                thread::sleep(RETRY);
            }
        })
        .collect();
    let other = run(vec![world(1, 2, port, "a")], LONG).remove(0);
    assert_eq!(other.map(|parts| parts.len()), Ok(2));
    assert_eq!(root.join().unwrap().map(|parts| parts.len()), Ok(2));
    drop(strays);
}

#[test]
fn a_missing_rank_is_named_at_all_ranks() {
    let port = free_port();
    let worlds = [0, 2].map(|rank| world(rank, 4, port, "a")).into();
    for (index, failed) in run(worlds, Duration::from_secs(1)).into_iter().enumerate() {
        let rank = 2 * index;
        assert_eq!(
            failed,
            Err(format!(
                "rank {rank} of 4: rendezvous at 127.0.0.1:{port}: rank 1, 3 did not come within 1 s"
            ))
        );
    }
}

#[test]
fn without_rank_0_the_others_say_so() {
    let port = free_port();
    let failed = run(vec![world(1, 2, port, "a")], Duration::from_millis(200)).remove(0);
    let text = failed.unwrap_err();
    assert!(text.contains("rank 0 was not reached within 0.2 s"), "{text}");
}

#[test]
fn a_rank_that_comes_twice_keeps_the_newer_connection() {
    let port = free_port();
    let start = move |rank| thread::spawn(move || run(vec![world(rank, 3, port, "a")], LONG).remove(0));
    let root = start(0);
    let mut twice = vec![start(1), start(1)];
    let older = loop {
        if let Some(index) = twice.iter().position(thread::JoinHandle::is_finished) {
            break twice.remove(index).join().unwrap();
        }
        thread::sleep(RETRY);
    };
    let text = older.unwrap_err();
    assert!(text.ends_with("rank 1 has come twice"), "{text}");
    let expected: Vec<_> = (0..3).map(|rank| vec![rank; 3]).collect();
    for rank in [start(2), twice.remove(0), root] {
        assert_eq!(rank.join().unwrap(), Ok(expected.clone()));
    }
}

#[test]
fn a_rank_that_leaves_before_all_have_come_leaves_its_place_open() {
    let port = free_port();
    let root = thread::spawn(move || run(vec![world(0, 3, port, "a")], LONG).remove(0));
    let leaf = || world(1, 3, port, "a");
    // One rank did not receive the welcome, and one has arrived.
    let deadline = Instant::now() + LONG;
    handshake::greet(&connected(port), &leaf(), deadline).unwrap();
    handshake::introduce(&connected(port), &leaf(), deadline).unwrap();
    let others = run(vec![leaf(), world(2, 3, port, "a")], LONG);
    for gathered in [others, vec![root.join().unwrap()]].concat() {
        assert_eq!(gathered.map(|parts| parts.len()), Ok(3));
    }
}

#[test]
fn ranks_that_left_are_missing() {
    let port = free_port();
    let timeout = Duration::from_secs(1);
    let root = thread::spawn(move || run(vec![world(0, 3, port, "a")], timeout).remove(0));
    handshake::introduce(&connected(port), &world(1, 3, port, "a"), Instant::now() + LONG).unwrap();
    let text = root.join().unwrap().unwrap_err();
    assert!(text.ends_with("rank 1, 2 did not come within 1 s"), "{text}");
}

#[test]
fn a_rank_that_loses_its_connection_before_all_have_come_comes_again() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let local = listener.local_addr().unwrap();
    let leaf = thread::spawn(move || run(vec![world(1, 2, local.port(), "a")], LONG).remove(0));
    let root = world(0, 2, local.port(), "a");
    let accept = || {
        let (stream, _) = listener.accept().unwrap();
        let deadline = Instant::now() + LONG;
        let peer = handshake::identify(&stream, &root, local, deadline).unwrap();
        handshake::welcome(&stream, &root, &peer, deadline).unwrap();
        stream
    };
    drop(accept());
    let stream = accept();
    send(&stream, &Answer::Agreed).unwrap();
    let gathered = gather_at_root(&[stream], &[5], LONG);
    assert_eq!(gathered, Ok(vec![vec![5], vec![1; 3]]));
    assert_eq!(leaf.join().unwrap(), gathered);
}

/// Accepts connections at `listener`, and relays them to `target` and back. Returns all relayed bytes.
fn relay(listener: TcpListener, target: SocketAddr) -> Arc<Mutex<Vec<u8>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let pump = |mut from: TcpStream, mut to: TcpStream, seen: Arc<Mutex<Vec<u8>>>| {
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                seen.lock().unwrap().extend_from_slice(&bytes[..count]);
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(std::net::Shutdown::Both);
        })
    };
    let log = seen.clone();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            if let Ok(far) = TcpStream::connect(target) {
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                pump(near, far, log.clone());
                pump(back.0, back.1, log.clone());
            }
        }
    });
    seen
}

#[test]
fn a_relay_at_the_first_port_gets_no_message_of_the_ranks() {
    // Two consecutive free ports.
    let (stranger, port) = loop {
        let stranger = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = stranger.local_addr().unwrap().port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            break (stranger, port);
        }
    };
    let seen = relay(stranger, (std::net::Ipv4Addr::LOCALHOST, port + 1).into());
    let root = thread::spawn(move || run(vec![world(0, 2, port, "a")], LONG).remove(0));
    drop(connected(port + 1));
    let other = run(vec![world(1, 2, port, "a")], LONG).remove(0);
    let expected = Ok(vec![vec![0; 3], vec![1; 3]]);
    assert_eq!(other, expected);
    assert_eq!(root.join().unwrap(), expected);
    let seen = seen.lock().unwrap();
    let has = |part: &[u8]| seen.windows(part.len()).any(|window| window == part);
    assert!(has(b"Refused"));
    assert!(!has(b"Welcome") && !has(b"Parts"));
}

/// Returns rank 0's answer to a rank that connects through a relay at another address, with the same port.
#[cfg(target_os = "linux")]
fn relayed(listens_at: &str) -> io::Result<usize> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let port = address.port();
    relay(TcpListener::bind(("127.0.0.2", port)).unwrap(), address);
    let leaf = thread::spawn(move || {
        let stream = TcpStream::connect(("127.0.0.2", port)).unwrap();
        handshake::introduce(&stream, &world(1, 2, port, "a"), Instant::now() + LONG)
    });
    let (stream, _) = listener.accept().unwrap();
    let (root, deadline) = (world(0, 2, port, "a"), Instant::now() + LONG);
    let listens_at = SocketAddr::new(listens_at.parse().unwrap(), port);
    let peer = handshake::identify(&stream, &root, listens_at, deadline);
    let peer = peer.and_then(|peer| handshake::welcome(&stream, &root, &peer, deadline).map(|()| peer.rank));
    drop(stream);
    assert_eq!(leaf.join().unwrap().is_ok(), peer.is_ok());
    peer
}

#[cfg(target_os = "linux")]
#[test]
fn a_relay_at_another_address_is_refused_unless_addresses_are_translated() {
    let error = relayed("127.0.0.1").unwrap_err();
    assert_eq!(error.to_string(), "has connected to another address");
    for all in ["0.0.0.0", "::"] {
        assert_eq!(relayed(all).unwrap(), 1);
    }
}

#[test]
fn different_numbers_of_ranks_are_an_error_of_all_ranks() {
    let port = free_port();
    let worlds = vec![world(0, 2, port, "a"), world(1, 3, port, "a")];
    for failed in run(worlds, LONG) {
        let text = failed.unwrap_err();
        assert!(
            text.ends_with("rank 1 expects 3 ranks, rank 0 expects 2"),
            "{text}"
        );
    }
}

/// Runs rank 0 of two ranks. `act` plays a stranger at its port before rank 1 connects. Returns rank 0's result.
fn among_strangers(act: impl FnOnce(u16)) -> Result<Vec<Vec<u8>>, String> {
    let port = free_port();
    let root = thread::spawn(move || run(vec![world(0, 2, port, "a")], LONG).remove(0));
    drop(connected(port));
    act(port);
    let other = run(vec![world(1, 2, port, "a")], LONG).remove(0);
    assert_eq!(other.map(|parts| parts.len()), Ok(2));
    root.join().unwrap()
}

fn connected(port: u16) -> TcpStream {
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(_) => thread::sleep(RETRY),
        }
    }
}

/// Reads until rank 0 closes the connection.
fn answer(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[test]
fn a_stranger_neither_ends_the_run_nor_takes_a_rank_nor_learns_of_it() {
    let gathered = among_strangers(|port| {
        // Hellos of another protocol version and with another number of ranks.
        for hello in [
            ("", 1, 2),
            ("a", 1, 2),
            ("", 7, 2),
            ("", 1, 3),
            ("", usize::MAX, 0),
        ] {
            let stream = connected(port);
            send(&stream, &hello).unwrap();
            let answer = answer(stream);
            assert!(answer.len() < 200, "{answer:?}");
            assert!(!answer.windows(5).any(|part| part == b"Parts"));
        }
        // Correct format with a wrong code.
        for (rank, size) in [(1, 2), (1, 3), (0, 2), (7, 2)] {
            let stream = connected(port);
            let place = ([0_u8; 16], 0_u16);
            send(&stream, &(rank, size, place, [7_u8; 32], [7_u8; 32])).unwrap();
            assert!(answer(stream).ends_with(b"Refused"));
        }
        // Ranks of another run.
        for size in [2, 3] {
            let failed = run(vec![world(1, size, port, "other")], Duration::from_millis(200));
            let text = failed[0].clone().unwrap_err();
            assert!(text.contains("rank 0 of another run"), "{text}");
        }
    });
    assert_eq!(gathered, Ok(vec![vec![0; 3], vec![1; 3]]));
}

#[test]
fn what_a_stranger_announces_is_not_waited_for() {
    let gathered = among_strangers(|port| {
        let mut streams: Vec<_> = (0..20).map(|_| connected(port)).collect();
        for stream in &mut streams {
            stream.write_all(b"hipsafe1\xff\xff\xff\xff").unwrap();
        }
        for stream in streams {
            answer(stream);
        }
    });
    assert!(gathered.is_ok());
}

#[test]
fn silent_strangers_make_way_for_ranks() {
    let mut held = Vec::new();
    let started = Instant::now();
    let gathered = among_strangers(|port| {
        held.extend((0..HANDSHAKES + 50).map(|_| connected(port)));
    });
    assert!(gathered.is_ok());
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_handshake_ends_however_slowly_bytes_come() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, local) = (listener.accept().unwrap().0, listener.local_addr().unwrap());
    let drips = thread::spawn(move || {
        // Ends when the other side has closed the connection.
        while stranger.write_all(b"h").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let deadline = Instant::now() + Duration::from_millis(100);
    let error = handshake::identify(&stream, &world(0, 2, 1, "a"), local, deadline).unwrap_err();
    assert!(
        is_timeout(&error) || error.to_string().contains("protocol"),
        "{error}"
    );
    drop(stream);
    drips.join().unwrap();
}

#[test]
fn a_false_rank_0_learns_no_more_than_a_hello() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let leaf = thread::spawn(move || {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        handshake::introduce(&stream, &world(1, 2, port, "a"), Instant::now() + LONG)
    });
    let (stream, _) = listener.accept().unwrap();
    // Rank 0 of another run, which accepts any code.
    let other = world(0, 2, port, "b");
    let local = listener.local_addr().unwrap();
    let error = handshake::identify(&stream, &other, local, Instant::now() + LONG).unwrap_err();
    assert_eq!(error.to_string(), "belongs to another run");
    let error = leaf.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("rank 0 of another run"), "{error}");
}

#[test]
fn a_rank_is_told_apart_from_one_with_another_secret() {
    let port = free_port();
    let with_secret = |rank: usize, secret: &'static str| {
        let find = move |name: &str| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some("2".to_owned()),
            "MASTER_PORT" => Some(port.to_string()),
            "TORCHELASTIC_RUN_ID" => Some(format!("secret{port}")),
            "HIPVIT_RENDEZVOUS_SECRET" => Some(secret.to_owned()),
            _ => None,
        };
        World::from_variables(find).unwrap().unwrap()
    };
    let root = thread::spawn({
        let root = with_secret(0, "0123456789abcdef");
        move || run(vec![root], LONG).remove(0)
    });
    let failed = run(
        vec![with_secret(1, "0123456789abcdeF")],
        Duration::from_millis(200),
    )
    .remove(0);
    assert!(failed.unwrap_err().contains("HIPVIT_RENDEZVOUS_SECRET"));
    let other = run(vec![with_secret(1, "0123456789abcdef")], LONG).remove(0);
    assert!(other.is_ok() && root.join().unwrap().is_ok());
}

#[test]
fn a_long_message_to_rank_0_is_refused() {
    let port = free_port();
    let ranks = [0, 1].map(|rank| {
        thread::spawn(move || {
            let mut rendezvous = Rendezvous::new(world(rank, 2, port, "a"), LONG).unwrap();
            // Rank 0's own message may be long, because the others trust it.
            let own = vec![200; if rank == 0 { 3 << 20 } else { MAX_PART }];
            let gathered = rendezvous.gather(&own).unwrap();
            assert_eq!(
                gathered.iter().map(Vec::len).collect::<Vec<_>>(),
                [3 << 20, MAX_PART]
            );
            rendezvous
                .gather(&vec![0; MAX_PART + 1])
                .map_err(|error| error.to_string())
        })
    });
    let [root, leaf] = ranks.map(|rank| rank.join().unwrap());
    assert!(leaf.unwrap_err().contains("exceeds"));
    assert!(root.unwrap_err().contains("rank 1 has ended"));
}

#[test]
fn rank_0_listens_where_the_others_look_for_it() {
    let bound = |host: &str| {
        let listeners = listen_at(host, free_port()).unwrap();
        let addresses = listeners
            .iter()
            .map(|listener| listener.local_addr().unwrap().ip());
        addresses.collect::<Vec<_>>()
    };
    assert_eq!(bound("127.0.0.1"), [std::net::Ipv4Addr::LOCALHOST]);
    assert_eq!(bound("127.0.0.2"), [std::net::Ipv4Addr::new(127, 0, 0, 2)]);
    assert!(bound("localhost").iter().all(std::net::IpAddr::is_loopback));
    // An address that this host does not have (TEST-NET-1), and an unknown name.
    for host in ["192.0.2.1", "name.invalid"] {
        let addresses = bound(host);
        assert!(
            addresses.len() == 1 && addresses[0].is_unspecified(),
            "{addresses:?}"
        );
    }
}
