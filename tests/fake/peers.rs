//! Two GPUs.

use hipvit::hip::{DeviceBuffer, Kernel, Stream};

use crate::support::fake::{Fake, LAUNCH, Scale, Slot, scale};

const N: usize = 1000;

fn pair(fake: &Fake) -> [Stream; 2] {
    fake.set(Slot::Devices, 2);
    let devices = fake.runtime().devices().unwrap();
    [0, 1].map(|n| devices[n].stream().unwrap())
}

/// Doubles every element, `times` times.
fn double(kernel: &Kernel<Scale>, buffer: &mut DeviceBuffer<f32>, times: usize) {
    let stream = buffer.stream().clone();
    let address = buffer.address();
    let arguments = Scale {
        from: address,
        to: address,
        n: N as u32,
        factor: 2.0,
    };
    for _ in 0..times {
        kernel
            .launch(&stream, LAUNCH, &arguments, &[buffer.writing()])
            .unwrap();
    }
}

#[test]
fn access_is_asked_for_and_enabled() {
    let fake = Fake::new("peer-access");
    {
        let [first, second] = pair(&fake);
        let (first, second) = (first.device(), second.device());
        assert!(first.can_access_peer(second).unwrap());
        assert!(first.can_access_peer(first).unwrap());
        for _ in 0..2 {
            first.enable_peer_access(second).unwrap();
            second.enable_peer_access(first).unwrap();
        }
    }
    fake.assert_clean();
}

/// The copy waits for the source's work, and the source's next work waits for the copy.
#[test]
fn a_copy_is_ordered_on_both_sides() {
    let fake = Fake::new("peer-copy");
    {
        for [from, to] in [pair(&fake), {
            let [a, b] = pair(&fake);
            [b, a]
        }] {
            let kernel = scale(from.device());
            let mut source = from.upload(&[1f32; N]).unwrap();
            let mut target = to.zeroed::<f32>(N).unwrap();
            double(&kernel, &mut source, 20);
            target.copy_from_peer(source.reading()).unwrap();
            source.fill(0).unwrap();
            double(&scale(to.device()), &mut target, 3);
            assert_eq!(target.read().unwrap(), [2f32.powi(23); N]);
            assert_eq!(source.read().unwrap(), [0.0; N]);

            // The memory of a dropped source is not reused before the copy is done.
            double(&scale(to.device()), &mut target, 20);
            let source = from.upload(&[7f32; N]).unwrap();
            target.copy_from_peer(source.reading()).unwrap();
            drop(source);
            let mut next = from.allocate::<f32>(N).unwrap();
            next.fill(0xff).unwrap();
            assert_eq!(target.read().unwrap(), [7.0; N]);
        }
    }
    fake.assert_clean();
}

#[test]
fn weights_are_copied_to_several_gpus() {
    let fake = Fake::new("peer-frozen");
    {
        let [home, other] = pair(&fake);
        let weights = home.upload(&[3f32; N]).unwrap().freeze().unwrap();
        let another = other.device().stream().unwrap();
        let mut copies = [&other, &another].map(|stream| stream.zeroed::<f32>(N).unwrap());
        for copy in &mut copies {
            copy.copy_from_peer(weights.reading()).unwrap();
        }
        drop(weights);
        let mut next = home.allocate::<f32>(N).unwrap();
        next.fill(0xff).unwrap();
        for copy in copies {
            assert_eq!(copy.read().unwrap(), [3.0; N]);
        }
    }
    fake.assert_clean();
}

#[test]
fn wrong_copies_are_refused_and_failed_ones_told() {
    let (fake, foreign) = (Fake::new("peer-wrong"), Fake::new("peer-foreign"));
    {
        let [from, to] = pair(&fake);
        let source = from.upload(&[1f32; N]).unwrap();
        let mut short = to.zeroed::<f32>(N - 1).unwrap();
        let error = short.copy_from_peer(source.reading()).unwrap_err().to_string();
        assert_eq!(error, "source: 4000 bytes into a buffer of 3996");

        let elsewhere = foreign.stream();
        let mut alien = elsewhere.zeroed::<f32>(N).unwrap();
        let error = alien.copy_from_peer(source.reading()).unwrap_err().to_string();
        assert!(error.contains("belongs to a different runtime"), "{error}");
        from.device().can_access_peer(elsewhere.device()).unwrap_err();

        // Of a frozen source, so that no event of the copy takes the error from the stream.
        let source = source.freeze().unwrap();
        let mut target = to.zeroed::<f32>(N).unwrap();
        fake.set(Slot::FailCopy, 1);
        target.copy_from_peer(source.reading()).unwrap();
        let error = target.read().unwrap_err().to_string();
        assert!(error.contains("hipErrorLaunchFailure"), "{error}");
        target.copy_from_peer(source.reading()).unwrap();
        assert_eq!(target.read().unwrap(), [1.0; N]);
    }
    fake.assert_clean();
    foreign.assert_clean();
}
