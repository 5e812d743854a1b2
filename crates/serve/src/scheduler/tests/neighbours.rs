//! Effect of one client of an engine on another.

use std::net::IpAddr;

use super::*;

/// Terms of the client at 10.0.0.`host`.
fn terms_of(host: u8) -> Terms {
    Terms {
        client: Some(Client::from(IpAddr::from([10, 0, 0, host]))),
        ..terms(Priority::Interactive)
    }
}

impl Steered {
    /// Submits an encoded image.
    fn decode(&self, bytes: &'static [u8], host: u8) -> Pending {
        let image = Content::Encoded(bytes::Bytes::from_static(bytes));
        self.engine
            .submit(vec![("image", image)], terms_of(host))
            .unwrap()
    }

    fn submit_of(&self, host: u8, image: f32) -> Result<Pending, Failure> {
        let image = ("pixel_values", Content::Values(vec![image]));
        self.engine.submit(vec![image], terms_of(host))
    }
}

#[test]
fn decoding_ends_when_the_client_leaves_or_its_deadline_passes() {
    let steered = Steered::new(1, 1, 16);
    let left = steered.decode(ENDLESS, 1);
    let next = steered.decode(&[7], 1);
    drop(left);
    steered.runs(&[7.0]);
    assert_eq!(answer(next), Ok(vec![7.0]));
    let late = {
        let terms = Terms {
            deadline: Instant::now() + Duration::from_millis(20),
            ..terms(Priority::Interactive)
        };
        let image = Content::Encoded(bytes::Bytes::from_static(ENDLESS));
        steered.engine.submit(vec![("image", image)], terms).unwrap()
    };
    let next = steered.decode(&[8], 1);
    steered.runs(&[8.0]);
    assert_eq!(answer(next), Ok(vec![8.0]));
    assert_eq!(answer(late).unwrap_err().kind(), Kind::DeadlineExceeded);
}

/// There is one thread, which a client holds as long as it likes.
#[test]
fn a_client_that_holds_the_decoders_does_not_hold_up_others() {
    let steered = Steered::new(1, 1, 16);
    let holding = [steered.decode(ENDLESS, 1), steered.decode(ENDLESS, 1)];
    for image in [&[7], &[8]] {
        let other = steered.decode(image, 2);
        steered.runs(&[f32::from(image[0])]);
        assert_eq!(answer(other), Ok(vec![f32::from(image[0])]));
    }
    drop(holding);
}

#[test]
fn a_client_that_fills_the_backlog_leaves_a_place_to_others() {
    let steered = Steered::with_backlog(1, 1, 8, 4);
    let shed = |result: Result<Pending, Failure>| match result.unwrap_err().kind() {
        Kind::Overloaded(_) => {}
        kind => panic!("{kind:?}"),
    };
    let first = steered.submit_of(1, 1.0).unwrap();
    let running = steered.next();
    let waiting: Vec<Pending> = (2..5)
        .map(|image| steered.submit_of(1, image as f32).unwrap())
        .collect();
    shed(steered.submit_of(1, 5.0));
    // Two clients have half of the backlog each, three have a third, whatever the first one holds.
    let others: Vec<Pending> = [(2, 6.0), (2, 7.0), (3, 8.0)]
        .map(|(host, image)| steered.submit_of(host, image).unwrap())
        .into();
    shed(steered.submit_of(2, 9.0));
    shed(steered.submit_of(3, 9.0));
    // The queue and one more backlog is the limit for all of them.
    let last: Vec<Pending> = (4..9)
        .map(|host| steered.submit_of(host, f32::from(host) + 16.0).unwrap())
        .collect();
    shed(steered.submit_of(9, 14.0));
    running.go.send(Ok(())).unwrap();
    for image in [2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 20.0, 21.0, 22.0, 23.0, 24.0] {
        steered.runs(&[image]);
    }
    for pending in [first].into_iter().chain(waiting).chain(others).chain(last) {
        answer(pending).unwrap();
    }
    // The shares are free again.
    assert!(steered.engine.shared.state.lock().by_client.is_empty());
}

#[test]
fn a_request_that_fills_the_queue_leaves_a_place_to_others() {
    let steered = Steered::with_backlog(1, 4, 8, 4);
    let images = (0..8).map(|image| ("pixel_values", Content::Values(vec![image as f32])));
    let all = steered.engine.submit(images.collect(), terms_of(1)).unwrap();
    let running = steered.next();
    assert!(steered.submit_of(1, 8.0).is_err());
    let others =
        [(2, 9.0), (2, 10.0), (3, 11.0)].map(|(host, image)| steered.submit_of(host, image).unwrap());
    assert!(steered.submit_of(2, 12.0).is_err());
    running.go.send(Ok(())).unwrap();
    steered.runs(&[4.0, 5.0, 6.0, 7.0]);
    steered.runs(&[9.0, 10.0, 11.0]);
    answer(all).unwrap();
    for pending in others {
        answer(pending).unwrap();
    }
}
