// JDBC: pgjdbc, started as a source file.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;

public class ClientJdbc {
    interface Ask {
        Object run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, String> to = flat(line);
            Map<String, Object> reply = new HashMap<>();
            try {
                reply.put("value", check(to));
            } catch (UnsupportedOperationException reason) {
                reply.put("unsupported", reason.getMessage());
            } catch (Throwable error) {
                reply.put("error", error.toString());
                reply.put("state", error instanceof SQLException known ? known.getSQLState() : null);
            }
            System.out.println(json(reply));
        }
    }

    static Object check(Map<String, String> to) throws Exception {
        if (to.get("check").equals("version")) return org.postgresql.Driver.class.getPackage().getImplementationVersion();
        if (to.get("check").equals("reconnect")) return reconnect(to);
        try (Connection conn = connected(to)) {
            return switch (to.get("check")) {
                case "connect", "tls" -> rows(conn, "SELECT 1").get(0).get(0);
                case "list" -> list(conn);
                case "describe" -> describe(conn);
                case "public" -> rows(conn, to.get("public"));
                case "decision" -> rows(conn, to.get("decision"));
                case "number" -> shown(rows(conn, to.get("number")));
                case "parameter" -> parameter(conn, to);
                case "transaction" -> transaction(conn, to);
                case "error" -> Map.of("state", refusal(() -> rows(conn, to.get("refused"))), "then", rows(conn, "SELECT 2").get(0).get(0));
                case "notice" -> notice(conn, to);
                case "pieces" -> pieces(conn, to);
                case "copy" -> copy(conn, to);
                case "cancel" -> cancel(conn, to);
                default -> throw new UnsupportedOperationException("not offered by the client, or not tried with it");
            };
        }
    }

    static Connection connected(Map<String, String> to) throws SQLException {
        Properties how = new Properties();
        how.setProperty("user", to.get("user"));
        how.setProperty("password", to.get("password"));
        how.setProperty("sslmode", to.get("ca").isEmpty() ? "disable" : "verify-full");
        if (!to.get("ca").isEmpty()) how.setProperty("sslrootcert", to.get("ca"));
        String place = "jdbc:postgresql://" + to.get("host") + ":" + to.get("port") + "/" + to.get("database");
        return DriverManager.getConnection(place, how);
    }

    static List<List<Object>> all(ResultSet found) throws SQLException {
        List<List<Object>> rows = new ArrayList<>();
        while (found.next()) {
            List<Object> row = new ArrayList<>();
            for (int at = 1; at <= found.getMetaData().getColumnCount(); at++) row.add(found.getObject(at));
            rows.add(row);
        }
        return rows;
    }

    static List<List<Object>> rows(Connection conn, String text) throws SQLException {
        try (PreparedStatement statement = conn.prepareStatement(text); ResultSet found = statement.executeQuery()) {
            return all(found);
        }
    }

    static Object shown(List<List<Object>> rows) {
        List<Object> all = new ArrayList<>();
        for (List<Object> row : rows) {
            List<Object> one = new ArrayList<>();
            for (Object cell : row) one.add(List.of(cell.getClass().getSimpleName(), cell.toString()));
            all.add(one);
        }
        return all;
    }

    static String refusal(Ask ask) throws Exception {
        try {
            ask.run();
        } catch (SQLException error) {
            return error.getSQLState();
        }
        throw new IllegalStateException("nothing was refused");
    }

    // DatabaseMetaData is what DBeaver, DataGrip and Tableau read.
    static Object list(Connection conn) throws SQLException {
        List<String> names = new ArrayList<>();
        try (ResultSet found = conn.getMetaData().getTables(null, "public", "%", new String[] {"TABLE"})) {
            while (found.next()) names.add(found.getString("TABLE_NAME"));
        }
        return names;
    }

    static Object describe(Connection conn) throws SQLException {
        List<List<Object>> columns = new ArrayList<>();
        try (ResultSet found = conn.getMetaData().getColumns(null, "public", "orders", "%")) {
            while (found.next()) columns.add(List.of(found.getString("COLUMN_NAME"), found.getString("TYPE_NAME")));
        }
        try (ResultSet found = conn.getMetaData().getPrimaryKeys(null, "public", "orders")) {
            if (!found.next() || !found.getString("COLUMN_NAME").equals("order_id")) throw new IllegalStateException("no key");
        }
        try (ResultSet found = conn.getMetaData().getImportedKeys(null, "public", "orders")) {
            if (!found.next() || !found.getString("PKTABLE_NAME").equals("city")) throw new IllegalStateException("no foreign key");
        }
        try (ResultSet found = conn.getMetaData().getIndexInfo(null, "public", "orders", false, true)) {
            if (!found.next()) throw new IllegalStateException("no index");
        }
        return columns;
    }

    static Object parameter(Connection conn, Map<String, String> to) throws SQLException {
        String text = to.get("parameter").replace("{1}", "?").replace("{2}", "?");
        List<List<Object>> last = null;
        try (PreparedStatement statement = conn.prepareStatement(text)) {
            for (int turn = 0; turn < 7; turn++) { // from the sixth on it is a named statement
                statement.setString(1, "female");
                statement.setInt(2, 2000);
                try (ResultSet found = statement.executeQuery()) {
                    last = all(found);
                }
            }
        }
        return last;
    }

    static Object transaction(Connection conn, Map<String, String> to) throws Exception {
        conn.setAutoCommit(false);
        List<List<Object>> before = rows(conn, to.get("decision"));
        Savepoint here = conn.setSavepoint("here");
        List<String> states = List.of(refusal(() -> rows(conn, to.get("refused"))), refusal(() -> rows(conn, to.get("public"))));
        conn.rollback(here);
        List<List<Object>> after = rows(conn, to.get("decision"));
        conn.commit();
        return Map.of("before", before, "states", states, "after", after);
    }

    static Object notice(Connection conn, Map<String, String> to) throws SQLException {
        List<String> said = new ArrayList<>();
        try (Statement statement = conn.createStatement(); ResultSet found = statement.executeQuery(to.get("decision"))) {
            for (SQLWarning one = statement.getWarnings(); one != null; one = one.getNextWarning()) said.add(one.getMessage());
        }
        return said;
    }

    static Object pieces(Connection conn, Map<String, String> to) throws SQLException {
        conn.setAutoCommit(false);
        try (Statement statement = conn.createStatement()) {
            statement.setFetchSize(7); // a portal with a row limit
            try (ResultSet found = statement.executeQuery(to.get("many"))) {
                return all(found);
            }
        }
    }

    static Object copy(Connection conn, Map<String, String> to) throws Exception {
        StringWriter said = new StringWriter();
        conn.unwrap(org.postgresql.PGConnection.class).getCopyAPI().copyOut("COPY (" + to.get("number") + ") TO STDOUT", said);
        List<Object> rows = new ArrayList<>();
        for (String line : said.toString().split("\n")) {
            List<Object> row = new ArrayList<>();
            for (String cell : line.split("\t")) row.add(List.of("String", cell));
            rows.add(row);
        }
        return rows;
    }

    static void word(String path) throws Exception {
        for (int tries = 0; !Files.exists(Path.of(path)); tries++) {
            if (tries > 12000) throw new IllegalStateException("nobody made " + path);
            Thread.sleep(10);
        }
    }

    static Object cancel(Connection conn, Map<String, String> to) throws Exception {
        try (Statement statement = conn.createStatement()) {
            Thread other = new Thread(() -> {
                try {
                    word(to.get("go"));
                    statement.cancel();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            other.start();
            String state = refusal(() -> statement.executeQuery(to.get("long")));
            other.join();
            return Map.of("state", state, "then", rows(conn, "SELECT 1").get(0).get(0));
        }
    }

    // What a pool does: isValid, and another connection if not.
    static Object reconnect(Map<String, String> to) throws Exception {
        Connection conn = connected(to);
        List<List<Object>> before = rows(conn, to.get("decision"));
        Files.createFile(Path.of(to.get("ready")));
        word(to.get("go"));
        if (!conn.isValid(5)) {
            conn.close();
            conn = connected(to);
        }
        try (Connection open = conn) {
            return Map.of("before", before, "after", rows(open, to.get("decision")));
        }
    }

    static Map<String, String> flat(String line) {
        Map<String, String> found = new HashMap<>();
        var pairs = Pattern.compile("\"([^\"]*)\": \"([^\"]*)\"").matcher(line);
        while (pairs.find()) found.put(pairs.group(1), pairs.group(2));
        return found;
    }

    static String json(Object value) {
        if (value == null) return "null";
        if (value instanceof Number || value instanceof Boolean) return value.toString();
        if (value instanceof Map<?, ?> map) {
            List<String> parts = new ArrayList<>();
            map.forEach((key, one) -> parts.add(json(key) + ":" + json(one)));
            return "{" + String.join(",", parts) + "}";
        }
        if (value instanceof Iterable<?> many) {
            List<String> parts = new ArrayList<>();
            many.forEach(one -> parts.add(json(one)));
            return "[" + String.join(",", parts) + "]";
        }
        StringBuilder text = new StringBuilder("\"");
        for (char one : value.toString().toCharArray()) {
            if (one == '"' || one == '\\') text.append('\\').append(one);
            else if (one < 32) text.append(String.format("\\u%04x", (int) one));
            else text.append(one);
        }
        return text.append('"').toString();
    }
}
