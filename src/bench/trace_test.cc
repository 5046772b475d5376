#include "bench/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace baton::bench {
namespace {

TEST(Trace, Mooncake) {
  const auto rows = parse_trace(
      "{\"timestamp\": 1500, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [3, 9]}\n"
      "\r\n"
      "{\"timestamp\": 500.5, \"input_length\": 10, \"output_length\": 0, \"more\": {}}",
      "t");
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  ASSERT_EQ(rows->size(), 2U);  // by time
  EXPECT_EQ((*rows)[0].time_s, 0);
  EXPECT_EQ((*rows)[0].n_prompt, 10);
  EXPECT_EQ((*rows)[0].n_output, 1);
  EXPECT_TRUE((*rows)[0].hash_ids.empty());
  EXPECT_DOUBLE_EQ((*rows)[1].time_s, 0.9995);
  EXPECT_EQ((*rows)[1].hash_ids, (std::vector<int64_t>{3, 9}));
}

TEST(Trace, Azure) {
  const auto rows = parse_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 23:59:59.9799600,4808,10\r\n"
      "2023-11-17 00:00:01.0000000,0,0\r\n"
      "2023-11-17T00:00:01.5+00:00,5,6\n"
      "2023-11-17 00:00:02,7,8\n",
      "t");
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  ASSERT_EQ(rows->size(), 4U);
  EXPECT_EQ((*rows)[0].n_prompt, 4808);
  EXPECT_EQ((*rows)[0].n_output, 10);
  EXPECT_NEAR((*rows)[1].time_s, 1.02004, 1e-6);
  EXPECT_EQ((*rows)[1].n_prompt, 1);
  EXPECT_NEAR((*rows)[2].time_s, 1.52004, 1e-6);
  EXPECT_NEAR((*rows)[3].time_s, 2.02004, 1e-6);
}

TEST(Trace, AsManyRowsAsAreAskedFor) {
  const std::string text = "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n";
  EXPECT_EQ(parse_trace(text + text + "nonsense", "t", 2)->size(), 2U);
  EXPECT_FALSE(parse_trace(text + text + "nonsense", "t", 3).has_value());
}

TEST(Trace, BadLinesAreNamed) {
  const std::string good = "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n";
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const auto message = [](const std::string& text) {
    const auto rows = parse_trace(text, "name");
    return rows ? std::string("accepted") : rows.error().message;
  };
  const auto names = [&](const std::string& text, const std::string& words) {
    EXPECT_NE(message(text).find(words), std::string::npos) << message(text);
  };
  names("", "name: no request in it");
  names("\n \n", "no request");
  names(header, "no request");
  names(good + "\n{\"timestamp\":", "name:3: not a JSON object");
  names(good + "[]", "name:2: not a JSON object");
  names(good + std::string(100'000, '['), "name:2: not a JSON object");
  names("{}", "name:1: 'timestamp'");
  names("{\"timestamp\":-1,\"input_length\":1,\"output_length\":1}", "'timestamp'");
  names("{\"timestamp\":1e300,\"input_length\":1,\"output_length\":1}", "'timestamp'");
  names("{\"timestamp\":\"0\",\"input_length\":1,\"output_length\":1}", "'timestamp'");
  names("{\"timestamp\":0,\"input_length\":-1,\"output_length\":1}", "'input_length'");
  names("{\"timestamp\":0,\"input_length\":1.5,\"output_length\":1}", "'input_length'");
  names("{\"timestamp\":0,\"input_length\":99999999999,\"output_length\":1}", "'input_length'");
  names("{\"timestamp\":0,\"input_length\":1}", "'output_length'");
  names("{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":7}", "'hash_ids'");
  names("{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1,\"2\"]}",
        "'hash_ids'");
  names("a,b,c\n", "name:1: neither");
  names(header + "2023-11-16 18:17:03,1\n", "name:2: three columns");
  names(header + "2023-02-30 18:17:03,1,1\n", "name:2: TIMESTAMP");
  names(header + "2023-11-16 25:17:03,1,1\n", "TIMESTAMP");
  names(header + "2023-11-16 18:17:03.,1,1\n", "TIMESTAMP");
  names(header + "2023-11-16 18:17:03.12345678901,1,1\n", "TIMESTAMP");
  names(header + "yesterday,1,1\n", "TIMESTAMP");
  names(header + "2023-11-16 18:17:03,x,1\n", "ContextTokens");
  names(header + "2023-11-16 18:17:03,1,\n", "GeneratedTokens");
  names(header + "2023-11-16 18:17:03,1,1,1\n", "GeneratedTokens");
  names(header + "2023-11-16 18:17:03,1,-1\n", "GeneratedTokens");
  names(std::string(5 << 20, 'x'), "name:1: a line over");
}

class TraceFile : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return (folder_ / name).string();
  }
  std::string write_gzip(const std::string& name, const std::string& text) {
    gzFile file = ::gzopen((folder_ / name).c_str(), "wb");
    ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    ::gzclose(file);
    return (folder_ / name).string();
  }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("bench_trace_test." + std::to_string(::getpid()));
};

TEST_F(TraceFile, CompressedOrNot) {
  const std::string text = "{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n";
  EXPECT_EQ(read_trace(write("plain", text))->size(), 1U);
  const std::string path = write_gzip("packed.gz", text + text);
  EXPECT_EQ(read_trace(path)->size(), 2U);

  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  EXPECT_FALSE(read_trace(write("cut.gz", bytes.substr(0, bytes.size() - 9))).has_value());
  const auto missing = read_trace((folder_ / "missing").string());
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(read_trace(folder_.string()).has_value());
  const auto bad = read_trace(write("bad", text + "?"));
  ASSERT_FALSE(bad.has_value());
  EXPECT_NE(bad.error().message.find("bad:2:"), std::string::npos);
}

TEST(SharedTraces, AreReadInFull) {
  const char* shared = std::getenv("BATON_SHARED");
  const std::filesystem::path folder =
      std::filesystem::path(shared != nullptr ? shared : BATON_SOURCE_DIR "/../shared") /
      "data/traces";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "skipped: no " << folder;
  const std::pair<const char*, size_t> traces[] = {{"mooncake_conversation.jsonl.gz", 12031},
                                                   {"mooncake_synthetic.jsonl.gz", 3993},
                                                   {"azure_2023_conv.csv.gz", 19366},
                                                   {"azure_2023_code.csv.gz", 8819}};
  for (const auto& [name, n_rows] : traces) {
    const auto rows = read_trace((folder / name).string());
    ASSERT_TRUE(rows.has_value()) << rows.error().message;
    EXPECT_EQ(rows->size(), n_rows);
  }
}

}  // namespace
}  // namespace baton::bench
