//! Input in memory of the GPU, and results that stay there.

use hipvit::hip::ForeignMemory;
use hipvit::{
    DType, Device, GpuOutputs, GpuTensor, Parallelism, RunInput, RunOptions, Session, SessionBuilder,
};

use crate::support::fake::session::{builder, model};
use crate::support::fake::{Fake, Slot};
use crate::support::session::{images, same};

/// The session sees the memory of another library.
#[test]
fn input_on_the_gpu_is_read_there() {
    let fake = Fake::new("device-input");
    {
        fake.set(Slot::Devices, 2);
        let gpus = fake.runtime().devices().unwrap();
        let one = Session::builder().gpu(gpus[0].clone()).threads(2).batch(2);
        let session = one.load(model()).unwrap();
        assert_eq!(session.input_gpu(), Some(&gpus[0]));
        let [height, width] = session.info().image_size;
        let pixels: Vec<u8> = (0..5 * height * width * 3).map(|i| (i * 7 % 251) as u8).collect();
        let expected = session
            .run_with(RunInput::Pixels(&pixels), RunOptions::new())
            .unwrap();
        let [stream, other] = [0, 1].map(|gpu| gpus[gpu].stream().unwrap());
        let [here, there] = [&stream, &other].map(|stream| stream.upload(&pixels).unwrap());
        // SAFETY: the buffers stay, their streams wrote them, and nothing else does.
        let [memory, elsewhere] = unsafe {
            [
                ForeignMemory::new(&stream, here.address(), pixels.len()),
                ForeignMemory::new(&other, there.address(), pixels.len()),
            ]
        };
        let run = |session: &Session, memory: &ForeignMemory, dtype| {
            session.run_with(RunInput::Device { memory, dtype }, RunOptions::new())
        };
        for _ in 0..3 {
            same(&run(&session, &memory, DType::U8).unwrap(), &expected);
        }
        let half = memory.part(0..2 * height * width * 3).unwrap();
        assert_eq!(
            run(&session, &half, DType::U8).unwrap().embeddings(),
            expected.embeddings().slice(hipvit::ndarray::s![..2, ..])
        );
        let stages = Session::builder()
            .gpus(gpus.clone())
            .parallel(Parallelism::pipeline())
            .batch(2)
            .load(model())
            .unwrap();
        same(&run(&stages, &memory, DType::U8).unwrap(), &expected);

        let error =
            |session, memory: &ForeignMemory, dtype| run(session, memory, dtype).unwrap_err().to_string();
        let text = error(&session, &memory, DType::F32);
        assert!(text.contains("is f32, expected u8"), "{text}");
        let text = error(&session, &memory.part(0..100).unwrap(), DType::U8);
        assert!(text.contains("not a whole number of images"), "{text}");
        let text = error(&session, &elsewhere, DType::U8);
        assert!(text.contains("is on GPU 1"), "{text}");
        assert!(memory.part(0..pixels.len() + 1).is_err());
        let replicas = Session::builder().gpus(gpus.clone()).load(model()).unwrap();
        assert_eq!(replicas.input_gpu(), None);
        let text = error(&replicas, &memory, DType::U8);
        assert!(text.contains("is on GPU 0"), "{text}");
        let cpu = Session::builder().device(Device::Cpu).load(model()).unwrap();
        let text = error(&cpu, &memory, DType::U8);
        assert!(text.contains("the session on cpu"), "{text}");
    }
    fake.assert_clean();
}

/// Returns the f32 values of a session's tensor through DLPack.
fn read(tensor: &GpuTensor) -> Vec<f32> {
    let stream = tensor.device().stream().unwrap();
    let exported = tensor.to_dlpack().unwrap();
    assert_eq!(exported.device(), tensor.device().dlpack());
    assert_eq!(exported.dtype(), Some(hipvit::hip::DType::F32));
    // SAFETY: what writes it is done, and it stays until the copy is.
    let memory = unsafe { exported.memory(&stream) }.unwrap();
    let mut copy = stream.allocate::<f32>(memory.bytes() / 4).unwrap();
    let mut uploads = copy.uploads_on(&stream).unwrap();
    uploads.push_foreign(0, &memory).unwrap();
    uploads.finish().unwrap().wait().unwrap();
    copy.read().unwrap()
}

#[test]
fn results_stay_on_the_gpu() {
    let fake = Fake::new("device-results");
    {
        fake.set(Slot::Devices, 2);
        let gpus = fake.runtime().devices().unwrap();
        let one = || Session::builder().gpu(gpus[0].clone()).threads(2).batch(2);
        let session = one().hidden_layers([1]).load(model()).unwrap();
        assert_eq!(session.output_gpu(), Some(&gpus[0]));
        let images = images(5);
        let expected = session.run(&images).unwrap();
        let check = |outputs: &GpuOutputs| {
            let values = |array: &hipvit::ndarray::Array2<f32>| array.iter().copied().collect::<Vec<_>>();
            assert_eq!(read(outputs.embeddings()), values(expected.embeddings()));
            assert_eq!(
                read(outputs.logits().unwrap()),
                values(expected.logits().unwrap())
            );
            let layer = expected.hidden_layer(1).unwrap();
            let got = outputs.hidden_layer(1).unwrap();
            assert_eq!(got.shape(), layer.shape());
            assert_eq!(read(got), layer.iter().copied().collect::<Vec<_>>());
            assert!(outputs.tokens().is_none());
        };
        for _ in 0..2 {
            check(&session.run_on_gpu(&images, RunOptions::new()).unwrap());
        }
        // Those that were given away outlive the session, and are not written by later runs.
        let kept = session.run_on_gpu(&images, RunOptions::new()).unwrap();
        session.run_on_gpu(&images[3..], RunOptions::new()).unwrap();
        drop(session);
        check(&kept);

        let none = one().load(model()).unwrap();
        let none = none.run_on_gpu(&images[..0], RunOptions::new()).unwrap();
        assert_eq!(none.embeddings().shape()[0], 0);
        let refused = |builder: SessionBuilder| {
            let session = builder.load(model()).unwrap();
            assert_eq!(session.output_gpu(), None);
            let error = session.run_on_gpu(&images, RunOptions::new()).unwrap_err();
            assert!(error.to_string().contains("the only one"), "{error}");
        };
        refused(Session::builder().device(Device::Cpu));
        refused(Session::builder().gpus(gpus.clone()));
        refused(
            Session::builder()
                .gpus(gpus.clone())
                .parallel(Parallelism::pipeline()),
        );
    }
    fake.assert_clean();
}

/// Results that stay on the GPU are compared, too, even if the host does not get them.
#[test]
fn wrong_replays_leave_right_results_on_the_gpu() {
    let fake = Fake::new("device-results-replay");
    {
        let session = builder(&fake).batch(2).hidden_layers([1]).load(model()).unwrap();
        let images = images(2);
        let expected = session.run(&images).unwrap();
        let layer: Vec<f32> = expected.hidden_layer(1).unwrap().iter().copied().collect();
        let run = || session.run_on_gpu(&images, RunOptions::new()).unwrap();
        run();
        fake.set(Slot::CorruptReplay, 1);
        let replays = || session.hip_graphs().unwrap();
        let wrong = (0..8)
            .filter(|_| read(run().hidden_layer(1).unwrap()) != layer)
            .count();
        assert!(
            replays().fallback.is_some() && replays().recomputed_runs == 1,
            "{:?}",
            replays()
        );
        // Those before the comparison, as the fallback says.
        assert!(wrong < 4, "{wrong}");
        assert_eq!(read(run().hidden_layer(1).unwrap()), layer);
    }
    fake.assert_clean();
}
