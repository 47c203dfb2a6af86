// SPDX-License-Identifier: Apache-2.0
//! Stand-ins for the scaler and the data plane in tests of the admin API and of the command line.
