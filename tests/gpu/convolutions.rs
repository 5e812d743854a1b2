//! A convnet of every op on images, compared with the reference in f64: by builtin kernels, by MIOpen, and image by image.

use std::sync::Arc;

use hipvit::exec::select::{Choice, Problem, SelectOptions};
use hipvit::exec::{Executor, ExecutorOptions, HipExecutor};
use hipvit::graph::plan::Plan;
use hipvit::graph::{Graph, Role, ValueId, interpret, optimize};
use hipvit::ndarray::Array2;
use hipvit::ops::{
    Activation, Add, AveragePool, Conv, ConvTranspose, Coordinates, Interpolate, InterpolationKernel,
    MaxPool, Op,
};
use hipvit::reference::model_tolerance;
use hipvit::tensor::{DType, Input, Tensor};
use hipvit::{GraphMode, Session};

use crate::support::gpu::{device, dtypes};
use crate::support::session::{compare, epsilon};

/// Adds ops with pseudo-random weights.
struct Net {
    graph: Graph,
    state: u32,
}

impl Net {
    fn constant(&mut self, shape: &[usize]) -> ValueId {
        let count: usize = shape.iter().product();
        let scale = (shape[1..].iter().product::<usize>() as f32).sqrt().recip();
        let number = |_| {
            self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((self.state >> 8) as f32 / (1 << 23) as f32 - 1.0) * scale
        };
        let values: Vec<f32> = (0..count).map(number).collect();
        let tensor = Tensor::from_f32(shape, values).unwrap();
        let name = format!("weight{}", self.graph.values().len());
        self.graph.constant(name, tensor)
    }

    fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let name = format!("node{}", self.graph.nodes().len());
        self.graph.push(Role::Other, name, op, inputs).unwrap()
    }

    /// Adds a 3×3 convolution with a bias, and an activation after it.
    fn conv(&mut self, x: ValueId, channels: [usize; 2], groups: usize, stride: usize) -> ValueId {
        let [channels, features] = channels;
        let weight = self.constant(&[features, 3, 3, channels / groups]);
        let bias = self.constant(&[features]);
        let conv = Conv {
            stride: [stride; 2],
            padding: [[1; 2]; 2],
            groups,
            bias: true,
            ..Conv::new([3, 3])
        };
        let y = self.push(conv, &[x, weight, bias]);
        self.push(Activation::Silu, &[y])
    }
}

fn convnet() -> Graph {
    let mut net = Net {
        graph: Graph::of_values("convnet", "image", [1, 18, 14, 3], DType::F32).unwrap(),
        state: 1,
    };
    let image = net.graph.input();
    let stem = net.conv(image, [3, 16], 1, 2);
    let max = MaxPool {
        kernel: [3; 2],
        stride: [1; 2],
        dilation: [1; 2],
        padding: [[1; 2]; 2],
        ceil: false,
    };
    let pooled = net.push(max, &[stem]);
    let depthwise = net.conv(pooled, [16, 16], 16, 1);
    let grouped = net.conv(depthwise, [16, 32], 2, 1);
    let narrow = net.conv(grouped, [32, 16], 8, 1);
    let weight = net.constant(&[16, 3, 3, 16]);
    let dense = Conv {
        padding: [[1; 2]; 2],
        ..Conv::new([3, 3])
    };
    let branch = net.push(dense, &[narrow, weight]);
    let sum = net.push(Add, &[pooled, branch]);
    let average = AveragePool {
        kernel: [2; 2],
        stride: [2; 2],
        dilation: [1; 2],
        padding: [[0; 2]; 2],
        ceil: true,
        count_padding: false,
    };
    let halved = net.push(average, &[sum]);
    let weight = net.constant(&[8, 2, 2, 16]);
    let transpose = ConvTranspose {
        stride: [2; 2],
        ..ConvTranspose::new([2, 2])
    };
    let doubled = net.push(transpose, &[halved, weight]);
    let resize = Interpolate {
        size: [7, 9],
        scale: None,
        kernel: InterpolationKernel::Linear,
        coordinates: Coordinates::HalfPixel,
        antialias: true,
        exclude_outside: true,
    };
    let resized = net.push(resize, &[doubled]);
    net.graph.add_output("features", resized).unwrap();
    net.graph
}

fn pixels(batch: usize) -> Vec<f32> {
    let count = batch * 18 * 14 * 3;
    (0..count)
        .map(|i| (i * 7919 % 251) as f32 / 125.0 - 1.0)
        .collect()
}

fn run(on_gpu: &Arc<HipExecutor>, plan: &Arc<Plan>, pixels: &[f32]) -> Array2<f32> {
    let executor: Arc<dyn Executor> = on_gpu.clone();
    let outputs = executor.run(plan, Input::Values(pixels), None).unwrap();
    outputs.iter().next().unwrap().values.clone()
}

#[test]
fn convnets_agree_with_the_reference() {
    let Some((device, _shared)) = device() else { return };
    let emulated = std::env::var("HIPVIT_PROVIDER").is_ok_and(|provider| provider.contains("hip_emu"));
    let batch = 3;
    for dtype in dtypes() {
        let builder = Session::builder().device(device).dtype(dtype);
        let gpu = builder.open_device().unwrap().unwrap();
        let (graph, _) = optimize(convnet(), &builder.passes()).unwrap();
        let graph = Arc::new(graph);
        let plan = Arc::new(Plan::new(graph.clone(), batch, dtype).unwrap());
        let pixels = pixels(batch);
        let expected = interpret(&graph, batch, Input::Values(&pixels)).unwrap();
        let options = ExecutorOptions {
            threads: Some(1),
            graphs: GraphMode::On,
            ..ExecutorOptions::new(dtype)
        };
        let mut on_gpu = Arc::new(HipExecutor::new(&graph, &gpu, &options).unwrap());
        let mut store = on_gpu.store();
        let has_miopen = store.key().libraries.contains("MIOpen");
        assert!(has_miopen || !emulated);
        let problems = on_gpu.problems(&plan).unwrap();
        let convs: Vec<Problem> = problems.into_iter().map(|(problem, _)| problem).collect();
        let convs = convs
            .into_iter()
            .filter(|problem| matches!(problem, Problem::Conv(_)));
        for problem in convs {
            store.insert(problem, Choice::Miopen, 1.0);
        }
        assert_eq!(store.len(), 5, "each convolution has a problem of its own");
        for by_miopen in [false, true] {
            if by_miopen {
                if !has_miopen {
                    continue;
                }
                Arc::get_mut(&mut on_gpu).unwrap().set_tuned(store.clone());
                let kernels = on_gpu.kernels(&plan).unwrap();
                let names = || kernels.iter().flat_map(|of| &of.kernels);
                let count = names().filter(|name| *name == "MIOpen convolution").count();
                assert!(count == 5 || !emulated, "{kernels:?}");
            }
            for _ in 0..3 {
                let values = run(&on_gpu, &plan, &pixels);
                let (error, _) = compare(&values, &expected[0].1, epsilon(dtype));
                let bound = model_tolerance(dtype, graph.nodes().len());
                assert!(
                    error <= bound,
                    "{dtype}, MIOpen {by_miopen}: {error:.1e} of {bound:.1e}"
                );
            }
        }

        Arc::get_mut(&mut on_gpu).unwrap().set_selection(SelectOptions {
            reproducible: true,
            ..SelectOptions::default()
        });
        let alone = Arc::new(Plan::new(graph.clone(), 1, dtype).unwrap());
        let together = run(&on_gpu, &plan, &pixels);
        let single = run(&on_gpu, &alone, &pixels[pixels.len() / batch * (batch - 1)..]);
        let (together, single) = (together.as_slice().unwrap(), single.as_slice().unwrap());
        assert_eq!(&together[single.len() * (batch - 1)..], single, "{dtype}");
    }
}
