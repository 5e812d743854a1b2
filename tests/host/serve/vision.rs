//! Models that find objects, masks or depths, over HTTP and gRPC.

use std::fs;

use hipvit::{Device, Session};
use hipvit_serve::ModelSource;
use hipvit_serve::proto::ModelInferRequest;
use hipvit_serve::proto::model_infer_request::InferInputTensor;
use serde_json::{Value, json};

use crate::support::at;
use crate::support::server::grpc::{block_on, client};
use crate::support::server::vision::{
    check_depths, check_masks, check_objects, decoded, file, images, running,
};
use crate::support::server::{MODEL, Running, floats, options, tensor};

#[test]
fn objects_are_those_of_transformers() {
    check_objects(Device::Cpu);
}

#[test]
fn masks_are_those_of_the_segmenter() {
    check_masks(Device::Cpu);
}

#[test]
fn depths_are_those_of_the_estimator() {
    check_depths(Device::Cpu);
}

fn served(model: &str) -> Running {
    running(&at("tests/golden").join(model), Device::Cpu)
}

fn names(tensors: &Value) -> Vec<&str> {
    let tensors = tensors.as_array().unwrap().iter();
    tensors.map(|tensor| tensor["name"].as_str().unwrap()).collect()
}

#[test]
fn models_describe_their_tensors() {
    for (model, inputs, outputs) in [
        (
            "rt_detr/rt_detr",
            &["image", "pixels"][..],
            &["boxes", "scores", "labels", "classes", "counts"][..],
        ),
        (
            "detect/yolos/model.onnx",
            &["image", "pixels"],
            &["boxes", "scores", "labels", "classes", "counts"],
        ),
        (
            "segment/sam",
            &["image", "pixels", "input_points", "input_labels", "input_boxes"],
            &["masks", "iou_scores"],
        ),
        ("depth/dpt", &["image", "pixels"], &["predicted_depth", "depth"]),
    ] {
        let running = served(model);
        let metadata = running.get(&format!("/v2/models/{MODEL}")).json();
        assert_eq!(
            (names(&metadata["inputs"]), names(&metadata["outputs"])),
            (inputs.into(), outputs.into())
        );
        let config = running.get(&format!("/v2/models/{MODEL}/config")).json();
        assert_eq!(names(&config["input"]), inputs);
        assert_eq!(config["max_batch_size"], 2);
    }
}

/// Pixels of the model's size give the bits of the session.
#[test]
fn pixels_are_taken_as_they_are() {
    let running = served("depth/dpt");
    let pixels = ndarray::Array4::<u8>::from_shape_fn((2, 48, 48, 3), |(b, y, x, c)| {
        (9 * b + 2 * y + 3 * x + c) as u8
    });
    let data: Vec<u8> = pixels.iter().copied().collect();
    let body =
        json!({"inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [2, 48, 48, 3], "data": data}]});
    let response = running.infer(&body);
    assert_eq!(response.status, 200, "{}", response.text());
    let session = Session::builder().device(Device::Cpu).threads(1);
    let session = session.load(at("tests/golden/depth/dpt")).unwrap();
    let expected = session.run_tensors([("pixels", &pixels)]).unwrap();
    let expected = expected.get("predicted_depth").unwrap().as_f32().unwrap();
    let expected: Vec<f32> = expected.iter().copied().collect();
    assert_eq!(floats(&response.json(), "predicted_depth"), expected);
}

/// Masks over gRPC, with raw tensors.
#[test]
fn grpc_has_the_same_tensors() {
    let running = served("segment/sam");
    let points =
        json!({"name": "input_points", "datatype": "FP32", "shape": [1, 1, 1, 2], "data": [40.0, 30.0]});
    let body = json!({"inputs": [images(&["wide.png"]), points], "parameters": {"best_mask": true}});
    let expected = running.infer(&body).json();
    let input = |name: &str, datatype: &str, shape: &[i64]| InferInputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.to_vec(),
        ..InferInputTensor::default()
    };
    let file = fs::read(file("wide.png")).unwrap();
    let mut element = (file.len() as u32).to_le_bytes().to_vec();
    element.extend(file);
    let points = [40.0_f32, 30.0].into_iter().flat_map(f32::to_le_bytes);
    let request = ModelInferRequest {
        model_name: MODEL.into(),
        inputs: vec![
            input("image", "BYTES", &[1]),
            input("input_points", "FP32", &[1, 1, 1, 2]),
        ],
        raw_input_contents: vec![element.into(), points.collect::<Vec<u8>>().into()],
        ..ModelInferRequest::default()
    };
    block_on(async {
        let mut client = client(running.address).await;
        let response = client.model_infer(request).await.unwrap().into_inner();
        let [masks, scores] = &response.outputs[..] else {
            panic!("{response:?}")
        };
        assert_eq!((masks.name.as_str(), masks.datatype.as_str()), ("masks", "BOOL"));
        let image = decoded("wide.png");
        let pixels = image.height * image.width;
        assert_eq!(masks.shape, [1, 1, 3, image.height as i64, image.width as i64]);
        let (values, _) = response.raw_output_contents[1].as_chunks();
        let values: Vec<f32> = values.iter().map(|&value| f32::from_le_bytes(value)).collect();
        assert_eq!((scores.name.as_str(), values.len()), ("iou_scores", 3));
        let best = (0..3).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap();
        assert_eq!(floats(&expected, "iou_scores"), [values[best]]);
        let found = response.raw_output_contents[0][best * pixels..][..pixels]
            .iter()
            .map(|&pixel| pixel == 1);
        let found: Vec<bool> = found.collect();
        assert_eq!(tensor(&expected, "masks")["data"], json!(found));
    });
}

#[test]
fn requests_that_a_model_cannot_follow_are_refused() {
    let points = |shape: Value, data: Value| json!({"name": "input_points", "datatype": "FP32", "shape": shape, "data": data});
    let labels = |shape: Value, data: Value| json!({"name": "input_labels", "datatype": "INT32", "shape": shape, "data": data});
    let boxes =
        |data: Value| json!({"name": "input_boxes", "datatype": "FP32", "shape": [1, 1, 4], "data": data});
    let point = || points(json!([1, 1, 1, 2]), json!([4, 3]));
    let wide = || images(&["wide.png"]);
    let detector = served("rt_detr/rt_detr");
    let segmenter = served("segment/sam");
    let depth = served("depth/depth_anything");
    for (running, body, expected) in [
        (&detector, json!({"inputs": []}), "the request has no image"),
        (
            &detector,
            json!({"inputs": [wide(), point()]}),
            "input `input_points`: the model has no such input; it has `image`, `pixels`",
        ),
        (
            &detector,
            json!({"inputs": [wide()], "parameters": {"threshold": 1.5}}),
            "parameter `threshold`: 1.5 is not from 0 to 1",
        ),
        (
            &detector,
            json!({"inputs": [wide()], "parameters": {"threshold": "high"}}),
            "parameter `threshold`: \"high\" is not a number",
        ),
        (
            &detector,
            json!({"inputs": [wide()], "parameters": {"best_mask": true}}),
            "parameter `best_mask` is for",
        ),
        (
            &detector,
            json!({"inputs": [wide()], "parameters": {"max_tokens": 3}}),
            "parameter `max_tokens` is for",
        ),
        (
            &detector,
            json!({"inputs": [wide()], "outputs": [{"name": "logits"}]}),
            "output `logits`: the model has no such output; it has `boxes`",
        ),
        (
            &detector,
            json!({"inputs": [wide()], "outputs": [{"name": "boxes"}, {"name": "boxes"}]}),
            "output `boxes`: is named more than once",
        ),
        (
            &detector,
            json!({"inputs": [{"name": "image", "datatype": "BYTES", "shape": [1], "data": ["AAAA"]}]}),
            "input `image`, image 0: ",
        ),
        (
            &segmenter,
            json!({"inputs": [wide()]}),
            "the request says no object to segment",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), points(json!([1, 2]), json!([4, 3]))]}),
            "input `input_points`: shape [1, 2] is not [images, objects, points, 2]",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), points(json!([2, 1, 1, 2]), json!([4, 3, 4, 3]))]}),
            "input `input_points`: shape [2, 1, 1, 2] is of another number of images; the request has 1",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), points(json!([1, 0, 1, 2]), json!([]))]}),
            "input `input_points`: has no object",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), points(json!([1, 65, 1, 2]), json!(vec![1; 130]))]}),
            "input `input_points`: has 65 objects of 1 points; the maximum is 64 of each",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), point(), labels(json!([1, 1, 2]), json!([1, 1]))]}),
            "input `input_labels`: shape [1, 1, 2] is not [1, 1, 1]",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), point(), labels(json!([1, 1, 1]), json!([2]))]}),
            "input `input_labels`: has the label 2",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), boxes(json!([1, 1, 5, 5])), labels(json!([1, 1, 1]), json!([1]))]}),
            "input `input_labels`: the request has no `input_points`",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), points(json!([1, 2, 1, 2]), json!([1, 1, 2, 2])), boxes(json!([1, 1, 5, 5]))]}),
            "input `input_boxes`: has boxes of 1 objects, but `input_points` has points of 2",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), points(json!([1, 2, 1, 2]), json!([4, 3, 4000, 3]))]}),
            "input `input_points`: image 0, object 1: the point 4000,3 is outside of the image",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), boxes(json!([5, 5, 1, 1]))]}),
            "input `input_boxes`: image 0, object 0: the box 5,5,1,1 has no area",
        ),
        (
            &segmenter,
            json!({"inputs": [wide(), point()], "parameters": {"threshold": 0.3}}),
            "parameter `threshold` is for",
        ),
        (
            &depth,
            json!({"inputs": [images(&["wide.png", "photo.jpg"])], "outputs": [{"name": "depth"}]}),
            "output `depth`: image 0 has ",
        ),
        (
            &depth,
            json!({"inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [1, 1, 3000, 3], "data": vec![0; 9000]}]}),
            "input `pixels`, image 0: ",
        ),
    ] {
        let (status, message) = running.infer(&body).error();
        assert_eq!(status, 400, "{message}");
        assert!(message.starts_with(expected), "{message}, expected {expected}");
    }
    let embeddings = json!({"model": MODEL, "input": "data:image/png;base64,AAAA"}).to_string();
    let response = detector.post("/v1/embeddings", &[], embeddings.as_bytes());
    assert_eq!(response.status, 400);
    assert!(
        response
            .text()
            .contains("finds objects, masks or depths, and has no embeddings"),
        "{}",
        response.text()
    );
}

/// Requests of several clients share batches, and count as images.
#[test]
fn requests_are_counted_and_share_batches() {
    let running = served("rt_detr/rt_detr");
    let body = json!({"inputs": [images(&["wide.png", "photo.jpg", "wide.png"])]});
    let response = running.infer(&body).json();
    let counts = &tensor(&response, "counts")["data"];
    assert_eq!(counts[0], counts[2]);
    let of = |name: &str| running.metric(&format!("{name}{{model=\"{MODEL}\""));
    assert_eq!(of("hipvit_images_total"), 3.0);
    assert_eq!(of("hipvit_batch_size_sum"), 3.0);
    assert_eq!(of("hipvit_batch_size_count"), 2.0);
    assert_eq!(
        running.metric(&format!(
            "hipvit_requests_total{{model=\"{MODEL}\",protocol=\"http\",outcome=\"ok\"}}"
        )),
        1.0
    );
    let statistics = running.get(&format!("/v2/models/{MODEL}/stats")).json();
    assert_eq!(statistics["model_stats"][0]["inference_count"], 3);
    let text = running.get("/metrics").text();
    assert!(
        text.contains(&format!(
            "hipvit_stage_duration_seconds_count{{model=\"{MODEL}\",stage=\"decode\"}} 3"
        )),
        "{text}"
    );
}

/// An ONNX file with a detector's configuration that is not one is served by its tensors.
#[test]
fn an_onnx_file_without_boxes_is_served_by_its_tensors() {
    let directory = tempfile::tempdir().unwrap();
    let from = at("tests/golden/detect/yolos");
    for name in ["model.onnx", "preprocessor_config.json"] {
        fs::copy(from.join(name), directory.path().join(name)).unwrap();
    }
    let mut config: Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    config["model_type"] = "rf_detr".into();
    fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
    let mut options = options();
    options.models = vec![ModelSource::new(MODEL, directory.path().join("model.onnx"))];
    let running = Running::new(options);
    let metadata = running.get(&format!("/v2/models/{MODEL}")).json();
    assert!(names(&metadata["outputs"]).contains(&"pred_boxes"), "{metadata}");
}
