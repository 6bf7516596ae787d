// One cluster of quantized elements, as encoders receive it and payloads store it.
#pragma once

namespace bitsnap::codec {

// The least and the greatest element of a cluster. The clusters of a tensor ascend and do not overlap, with -0 below 0.
struct ClusterExtent {
  float least = 0;
  float greatest = 0;
};

}  // namespace bitsnap::codec
