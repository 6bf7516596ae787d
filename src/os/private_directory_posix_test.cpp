// Tests of private directories against other users, who may take every name before. The superuser plays both.
#include "os/private_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "os/forked_child_testing.hpp"
#include "os/local_socket.hpp"
#include "os/process.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

using testing::StartsWith;

constexpr uid_t kOtherUser = 65534;

std::string own_name() { return "/bitsnap-" + std::to_string(user_id()); }

TEST(PrivateDirectory, IsMadeOnceForThisUserAlone) {
  const TemporaryDirectory above;
  EXPECT_EQ(find_private_directory(above.path()), std::nullopt);
  const auto made = make_private_directory(above.path());
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(*made, above.path() + own_name());
  struct ::stat info{};
  ASSERT_EQ(::stat(made->c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0700u);
  EXPECT_EQ(find_private_directory(above.path()), *made);
  EXPECT_EQ(make_private_directory(above.path()).value(), *made);
  EXPECT_EQ(make_private_directory(above / "none").error().kind(), ErrorKind::not_found);
}

TEST(PrivateDirectory, IsFoundUnderAnotherNameIfSomebodyElseHasTheFirst) {
  const auto check = [](const auto& take_name) {
    const TemporaryDirectory above;
    take_name(above.path() + own_name());
    EXPECT_EQ(find_private_directory(above.path()), std::nullopt);
    const auto made = make_private_directory(above.path());
    ASSERT_TRUE(made) << made.error().message();
    EXPECT_THAT(*made, StartsWith(above.path() + own_name() + "-"));
    EXPECT_EQ(find_private_directory(above.path()), *made);
    EXPECT_EQ(make_private_directory(above.path()).value(), *made);
  };
  check([](const std::string& name) {
    ::mkdir(name.c_str(), 0700);
    ::chmod(name.c_str(), 0770);  // others could create names
  });
  const TemporaryDirectory elsewhere;
  check([&](const std::string& name) { std::filesystem::create_directory_symlink(elsewhere.path(), name); });
  if (user_id() != 0) GTEST_SKIP() << "needs the superuser, to create a directory of another user";
  check([](const std::string& name) {
    ::mkdir(name.c_str(), 0700);
    ASSERT_EQ(::chown(name.c_str(), kOtherUser, kOtherUser), 0);
  });
}

TEST(PrivateDirectory, IsTheSameForProcessesThatMakeItTogether) {
  for (int round = 0; round < 20; ++round) {
    const TemporaryDirectory above;
    std::filesystem::create_directory(above.path() + own_name());
    std::filesystem::permissions(above.path() + own_name(), std::filesystem::perms::all);
    const LivingChild other([&] { return make_private_directory(above.path()) ? 0 : 1; });
    const auto made = make_private_directory(above.path());
    ASSERT_TRUE(made && other.said() == 0);
    EXPECT_EQ(find_private_directory(above.path()), make_private_directory(above.path()).value());
  }
}

TEST(PrivateDirectory, IsLockedByOneProcessAtATime) {
  const TemporaryDirectory above;
  const std::string directory = make_private_directory(above.path()).value();
  {
    const auto lock = lock_directory(directory, 0);
    ASSERT_TRUE(lock);
    EXPECT_EQ(lock_directory(directory, 20).error().kind(), ErrorKind::busy);
  }
  EXPECT_TRUE(lock_directory(directory, 0));
}

TEST(LocalSocket, GivesTheNameOfAKilledListenerToTheNext) {
  const std::string name = unique_name();
  LivingChild child([&] {
    static std::optional<LocalListener> kept;
    auto listener = LocalListener::listen(name);
    if (!listener) return 1;
    kept.emplace(std::move(listener).value());
    return 0;
  });
  ASSERT_EQ(child.said(), 0);
  EXPECT_EQ(LocalListener::listen(name).error().kind(), ErrorKind::busy);
  child.kill();
  child.reap();
  EXPECT_EQ(LocalConnection::connect(name, 0).error().kind(), ErrorKind::not_found);
  EXPECT_TRUE(LocalListener::listen(name));
}

TEST(LocalSocket, HasANameThatNoOtherUserCanTakeOrUse) {
  if (user_id() != 0) GTEST_SKIP() << "needs the superuser, to become another user";
  const std::string name = unique_name();
  const LivingChild other([&] {
    static std::optional<LocalListener> kept;
    if (::setuid(kOtherUser) != 0) return 1;
    auto listener = LocalListener::listen(name);
    if (!listener) return 2;
    kept.emplace(std::move(listener).value());
    return 0;
  });
  ASSERT_EQ(other.said(), 0);
  EXPECT_EQ(LocalConnection::connect(name, 0).error().kind(), ErrorKind::not_found);
  const auto listener = LocalListener::listen(name);
  ASSERT_TRUE(listener) << listener.error().message();
  EXPECT_TRUE(LocalConnection::connect(name, 0));
}

}  // namespace
}  // namespace bitsnap::os
