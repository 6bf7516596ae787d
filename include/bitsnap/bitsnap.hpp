// All public headers of bitsnap.
#pragma once

#include <bitsnap/analysis.hpp>
#include <bitsnap/branch.hpp>
#include <bitsnap/codec.hpp>
#include <bitsnap/coder.hpp>
#include <bitsnap/convert.hpp>
#include <bitsnap/cpu.hpp>
#include <bitsnap/dtype.hpp>
#include <bitsnap/engine.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/error_tally.hpp>
#include <bitsnap/estimate.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/global_tensor.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/object_store.hpp>
#include <bitsnap/quantization.hpp>
#include <bitsnap/safetensors.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/text.hpp>
#include <bitsnap/value.hpp>
#include <bitsnap/version.hpp>
#include <bitsnap/writer.hpp>
